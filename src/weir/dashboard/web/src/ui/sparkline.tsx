// A depth over time in the height of a line of text.

export function Sparkline({ values, label }: { values: (number | null)[]; label: string }) {
  const known = values.filter((value): value is number => value != null);
  if (known.length < 2) return <svg class="spark" width="96" height="22" role="img" aria-label={`${label}: no data`} />;
  const top = Math.max(...known, 1);
  const points = values
    .map((value, i) => (value == null ? null : `${((i / (values.length - 1)) * 94 + 1).toFixed(1)},${(20 - (value / top) * 18).toFixed(1)}`))
    .filter(Boolean)
    .join(" ");
  return (
    <svg class="spark" width="96" height="22" role="img" aria-label={`${label}: from ${known[0]} to ${known[known.length - 1]}, at most ${top}`}>
      <polyline points={points} fill="none" stroke="currentColor" stroke-width="1.4" />
    </svg>
  );
}
