"""Control a headless Chromium over two pipes by the DevTools protocol, without a further package."""

import json
import os
import select
import shutil
import subprocess
import time
from itertools import count
from pathlib import Path

BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
FLAGS += ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"]
PATIENCE = 60  # seconds, for a busy machine


class Chromium:
    """One page in one browser: `with Chromium(folder) as page: page.open(path)`."""

    def __init__(self, profile):
        to_child, self.out = os.pipe()
        self.back, from_child = os.pipe()
        command = [BINARY, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_child} 4>&{from_child}', "chromium", *command],
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child), os.close(from_child)
        self.numbers, self.buffer, self.events, self.session = count(1), b"", [], {}

    def __enter__(self):
        pages = self.call("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *error):
        """Ask the browser to quit, so that it ends its child processes too."""
        os.write(self.out, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out), os.close(self.back)

    def receive(self, until):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.back], [], [], max(0, until - time.monotonic()))
            chunk = os.read(self.back, 1 << 20) if ready else b""
            if not chunk:
                raise TimeoutError("Chromium does not answer")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        number, until = next(self.numbers), time.monotonic() + PATIENCE
        message = {"id": number, "method": method, "params": params, **self.session}
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while (message := self.receive(until)).get("id") != number:
            self.events.append(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return message["result"]

    def wait(self, event):
        until = time.monotonic() + PATIENCE
        while not any(message["method"] == event for message in self.events):
            self.events.append(self.receive(until))

    def resize(self, width, height=800):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def open(self, path):
        """Load a file and collect what happens from then on in `events`."""
        self.events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        self.wait("Page.loadEventFired")

    def ask(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def of(self, event):
        return [message["params"] for message in self.events if message["method"] == event]
