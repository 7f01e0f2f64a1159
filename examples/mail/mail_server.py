"""A mail server for trying out: takes every mail and prints its recipient."""

import socketserver


class Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.say("220 ready")
        while line := self.rfile.readline().decode().strip():
            verb = line.split()[0].upper()
            if verb == "DATA":
                self.say("354 go on")
                while self.rfile.readline().strip() != b".":
                    pass
            elif verb == "RCPT":
                print(line.partition(":")[2], flush=True)
            self.say("221 bye" if verb == "QUIT" else "250 ok")
            if verb == "QUIT":
                return

    def say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


if __name__ == "__main__":
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 8025), Session) as server:
        print("taking mails", flush=True)
        server.serve_forever()
