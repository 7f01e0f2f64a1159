// The evidence of a verdict as a small table: what, now, usually.

import type { EvidenceRow } from "../api/types";

export function Evidence({ rows }: { rows: EvidenceRow[] }) {
  if (!rows.length) return null;
  const compared = rows.some((row) => row.usual !== null);
  return (
    <table class="evidence">
      <caption class="visually-hidden">Evidence</caption>
      <thead>
        <tr>
          <th scope="col">
            <span class="visually-hidden">What</span>
          </th>
          <th scope="col">now</th>
          {compared && <th scope="col">usually</th>}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.what}>
            <th scope="row">{row.what}</th>
            <td>{row.now}</td>
            {compared && <td>{row.usual}</td>}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
