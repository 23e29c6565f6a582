"""A small client of yaml-language-server, the server behind YAML in VS Code, Neovim and Helix."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
SETTINGS = json.loads((ROOT / ".vscode/settings.json").read_text(encoding="utf-8"))
Json = dict[str, Any]


def command() -> list[str] | None:
    """How to start the server; POLYMODEL_YAML_SERVER names its script where it is not on the path."""
    named = os.environ.get("POLYMODEL_YAML_SERVER")
    node = shutil.which("node")
    if named:
        return [node, named, "--stdio"] if node and Path(named).is_file() else None
    found = shutil.which("yaml-language-server")
    return [found, "--stdio"] if found else None


class Server:
    """Speaks the language server protocol; schemas come from modelines alone, tags from our settings."""

    def __init__(self, start: list[str]) -> None:
        self.process = subprocess.Popen(
            start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.answers: queue.Queue[Json] = queue.Queue()
        self.found: dict[str, list[Json]] = {}
        self.number = 0
        threading.Thread(target=self._read, daemon=True).start()
        support = {"completion": {"completionItem": {"snippetSupport": True}}}
        about = {"workspace": {"configuration": True}, "textDocument": support}
        self.ask("initialize", {"processId": None, "rootUri": None, "capabilities": about})
        self._send({"method": "initialized", "params": {}})

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(10)

    def ask(self, method: str, params: Json) -> Any:
        self.number += 1
        self._send({"id": self.number, "method": method, "params": params})
        while True:
            answer = self.answers.get(timeout=60)
            if answer["id"] == self.number:
                return answer["result"]

    def faults(self, path: Path, text: str) -> list[str]:
        """Open a document; what the editor would underline, `line: message` with lines from 1."""
        uri = path.absolute().as_uri()
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        begun = time.monotonic()
        while uri not in self.found and time.monotonic() - begun < 60:
            time.sleep(0.02)
        return [f"{d['range']['start']['line'] + 1}: {d['message']}" for d in self.found[uri]]

    def at(self, what: str, path: Path, line: int, column: int) -> Any:
        """A request at a line and column, both from 1."""
        position = {"line": line - 1, "character": column - 1}
        document = {"uri": path.absolute().as_uri()}
        return self.ask(f"textDocument/{what}", {"textDocument": document, "position": position})

    def offered(self, path: Path, line: int, column: int) -> set[str]:
        found = self.at("completion", path, line, column)
        return {i["label"] for i in (found["items"] if isinstance(found, dict) else found)}

    def _send(self, message: Json) -> None:
        assert self.process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while line := stream.readline():
            length = 0
            while line.strip():
                name, _, value = line.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
                line = stream.readline()
            self._take(json.loads(stream.read(length)))

    def _take(self, message: Json) -> None:
        if message.get("method") == "textDocument/publishDiagnostics":
            self.found[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif "method" in message and "id" in message:
            self._send({"id": message["id"], "result": self._settings(message)})
        elif "id" in message:
            self.answers.put(message)

    def _settings(self, message: Json) -> list[Json] | None:
        if message["method"] != "workspace/configuration":
            return None
        ours = {"customTags": SETTINGS["yaml.customTags"], "schemaStore": {"enable": False}}
        ours |= {"validate": True, "completion": True, "hover": True}
        return [ours if i.get("section") == "yaml" else {} for i in message["params"]["items"]]
