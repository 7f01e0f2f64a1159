// JSON whose payloads stay the text that they are: a number such as 9007199254740993 or 1.0 changes if it is parsed.

/** JSON text that is sent as it is. */
export class Raw {
  constructor(readonly text: string) {}
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** Parse JSON, but answer with the text of the members at these paths, such as `items.payload`; null stays null. */
export function parse(text: string, raw: string[]): unknown {
  if (!raw.length) return JSON.parse(text);
  const wanted = new Set(raw);
  const parts: string[] = [];
  const path: string[] = []; // the names of the members around, "" for what is in a list
  let copied = 0; // up to where the text is in `parts`
  let name = ""; // of the member whose value comes next
  let start = -1; // of the value that is kept as text
  let outside = 0; // the depth around that value
  let before = "";
  let end = 0; // of the token before
  for (const found of text.matchAll(TOKEN)) {
    const token = found[0];
    if (start >= 0 && path.length === outside && (token === "," || token === "}")) {
      const value = text.slice(start, end);
      if (value !== "null") {
        parts.push(text.slice(copied, start), JSON.stringify(value));
        copied = end;
      }
      start = -1;
    }
    if (token === ":") {
      name = start === -1 ? (JSON.parse(before) as string) : "";
      if (start === -1 && wanted.has([...path.filter(Boolean), name].join("."))) {
        outside = path.length;
        start = -2; // it begins with the next token
      }
    } else {
      if (start === -2) start = found.index;
      if (token === "{" || token === "[") path.push(name);
      else if (token === "}" || token === "]") path.pop();
      name = "";
    }
    before = token;
    end = found.index + token.length;
  }
  return JSON.parse(parts.join("") + text.slice(copied));
}

/** Any value as JSON, with the texts that are in it as they are. */
export function write(value: unknown): string {
  if (value instanceof Raw) return value.text;
  if (Array.isArray(value)) return `[${value.map(write).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${write(member)}`).join(",")}}`;
}

/** JSON text over several lines, as `JSON.stringify(…, null, 2)` writes it, with its numbers as they are. */
export function pretty(text: string): string {
  const parts: string[] = [];
  let depth = 0;
  let before = "";
  const line = () => parts.push("\n", "  ".repeat(depth));
  for (const [token] of text.matchAll(TOKEN)) {
    const closes = token === "}" || token === "]";
    if (closes) depth--;
    if (closes ? before !== "{" && before !== "[" : before === "{" || before === "[" || before === ",") line();
    parts.push(token === ":" ? ": " : token);
    if (token === "{" || token === "[") depth++;
    before = token;
  }
  return parts.join("");
}

/** JSON text in one line. */
export function compact(text: string): string {
  return Array.from(text.matchAll(TOKEN), ([token]) => token).join("");
}
