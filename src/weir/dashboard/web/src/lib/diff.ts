// Compares two texts line by line: which lines stayed, were removed or were added.

export type DiffLine = { kind: " " | "+" | "-"; text: string };

/** How many pairs of lines are compared at most; of more, all are removed and added. */
const MOST_PAIRS = 1_000_000;

export function diffLines(before: string, after: string): DiffLine[] {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const all = (kind: DiffLine["kind"], lines: string[]) => lines.map((text) => ({ kind, text }));
  const [removed, added] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
  const changed = removed.length * added.length > MOST_PAIRS ? [...all("-", removed), ...all("+", added)] : compare(removed, added);
  return [...all(" ", a.slice(0, head)), ...changed, ...all(" ", a.slice(a.length - tail))];
}

function compare(a: string[], b: string[]): DiffLine[] {
  const common = longestCommon(a, b);
  const lines: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) lines.push({ kind: " ", text: a[i++]! }), j++;
    else if (i < a.length && (j >= b.length || common[i + 1]![j]! >= common[i]![j + 1]!)) lines.push({ kind: "-", text: a[i++]! });
    else lines.push({ kind: "+", text: b[j++]! });
  }
  return lines;
}

function longestCommon(a: string[], b: string[]): number[][] {
  const table = Array.from({ length: a.length + 1 }, () => new Array<number>(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      table[i]![j] = a[i] === b[j] ? table[i + 1]![j + 1]! + 1 : Math.max(table[i + 1]![j]!, table[i]![j + 1]!);
  return table;
}
