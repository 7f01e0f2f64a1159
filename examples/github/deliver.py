"""Sends an event as GitHub does: signed, with the id of the delivery."""

import hashlib
import hmac
import json
import os
import sys
import urllib.request

delivery, title = sys.argv[1:]
body = json.dumps({"action": "opened", "pull_request": {"number": 7, "title": title}}).encode()
signature = hmac.new(os.environ["GITHUB_WEBHOOK_SECRET"].encode(), body, hashlib.sha256).hexdigest()
headers = {
    "Content-Type": "application/json",
    "X-GitHub-Event": "pull_request",
    "X-GitHub-Delivery": delivery,
    "X-Hub-Signature-256": f"sha256={signature}",
}
request = urllib.request.Request("http://127.0.0.1:8420/hook/GitHub", data=body, headers=headers)
print(urllib.request.urlopen(request).status)
