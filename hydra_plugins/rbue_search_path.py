"""Where Hydra looks for YAML: in the folders of plugins too, after the suite's own. Hydra looks in this folder."""

from hydra.plugins.search_path_plugin import SearchPathPlugin

from rbue import plugins


class PluginFolders(SearchPathPlugin):
    def manipulate_search_path(self, search_path):
        for folder in plugins.folders():
            search_path.append(provider="rbue plugin", path=f"file://{folder}")
