"""Sends mails. A worker runs it: `weir worker --app tasks:app`."""

import os
import smtplib
from email.message import EmailMessage

from weir.worker import Commands, Context, Reject

app = Commands()


@app.command("Mail.Send")
def send(to: str, subject: str, text: str, context: Context) -> None:
    """Send a mail. After an exception it is tried again; after `Reject` it is not: that would always fail."""
    if "@" not in to:
        raise Reject(f"{to!r} is not an address")
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "shop@example.com", to, subject
    # A mail server may drop a mail that it saw before: the id stays the same over attempts.
    mail["Message-ID"] = f"<{context.message_id}@example.com>"
    mail.set_content(text)
    with smtplib.SMTP(os.environ["SMTP_HOST"], int(os.environ["SMTP_PORT"]), timeout=10) as server:
        server.send_message(mail)
    print(f"sent to {to} (attempt {context.attempt})", flush=True)
