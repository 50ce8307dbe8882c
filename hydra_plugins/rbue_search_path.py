"""Add the plugins' folders to Hydra's search path for YAML, after the suite's own. Hydra finds this file by itself."""

from hydra.plugins.search_path_plugin import SearchPathPlugin

from rbue import plugins


class PluginFolders(SearchPathPlugin):
    def manipulate_search_path(self, search_path):
        for folder in plugins.folders():
            search_path.append(provider="rbue plugin", path=f"file://{folder}")
