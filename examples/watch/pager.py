"""Takes alerts over HTTP and prints them. Their body has the form that Alertmanager sends."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer


class Pager(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for alert in document["alerts"]:
            print(f"{alert['status']}: {alert['labels']['alertname']}", flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print alerts and nothing else."""


if __name__ == "__main__":
    print("waiting for alerts", flush=True)
    HTTPServer(("127.0.0.1", 8426), Pager).serve_forever()
