// Tables that sort, and that stay quick with thousands of rows by drawing a page at a time.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export type Column<T> = {
  key: string;
  label: string;
  cell: (row: T) => ComponentChildren;
  sort?: (row: T) => number | string | null;
  numeric?: boolean;
};

type Props<T> = {
  caption: string;
  rows: T[];
  columns: Column<T>[];
  rowKey: (row: T) => string;
  sort: string; // "column" or "-column"
  onSort?: (sort: string) => void;
  empty?: ComponentChildren;
  pageSize?: number;
};

export function Table<T>({ caption, rows, columns, rowKey, sort, onSort, empty, pageSize = 100 }: Props<T>) {
  const [shown, setShown] = useState(pageSize);
  if (!rows.length && empty) return <div class="empty">{empty}</div>;
  const sorted = order(rows, columns, sort);
  const page = sorted.slice(0, shown);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption class="visually-hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <Head key={column.key} column={column} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {page.map((row) => (
            <tr key={rowKey(row)}>
              {columns.map((column) => (
                <td key={column.key} class={column.numeric ? "num" : undefined}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {sorted.length > page.length && (
        <p class="more">
          <button type="button" onClick={() => setShown(shown + pageSize)}>
            Show {Math.min(pageSize, sorted.length - page.length)} more of {sorted.length}
          </button>
        </p>
      )}
    </div>
  );
}

function Head<T>({ column, sort, onSort }: { column: Column<T>; sort: string; onSort: ((sort: string) => void) | undefined }) {
  const active = sort.replace(/^-/, "") === column.key;
  const descending = active && sort.startsWith("-");
  if (!column.sort || !onSort)
    return (
      <th scope="col" class={column.numeric ? "num" : undefined}>
        {column.label}
      </th>
    );
  return (
    <th
      scope="col"
      class={column.numeric ? "num" : undefined}
      aria-sort={active ? (descending ? "descending" : "ascending") : "none"}
    >
      <button type="button" class="sort" onClick={() => onSort(active && descending ? column.key : `-${column.key}`)}>
        {column.label}
        <span aria-hidden="true">{active ? (descending ? " ↓" : " ↑") : ""}</span>
      </button>
    </th>
  );
}

function order<T>(rows: T[], columns: Column<T>[], sort: string): T[] {
  const column = columns.find((candidate) => candidate.key === sort.replace(/^-/, ""));
  if (!column?.sort) return rows;
  const value = column.sort;
  const sign = sort.startsWith("-") ? -1 : 1;
  return [...rows].sort((a, b) => {
    const left = value(a);
    const right = value(b);
    if (left === right) return 0;
    if (left === null) return 1; // unknown values come last in both directions
    if (right === null) return -1;
    return left < right ? -sign : sign;
  });
}
