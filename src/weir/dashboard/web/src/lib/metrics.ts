// The units in which a person types the threshold of an alert rule. The API names the metrics and their units.

type TypedUnit = {
  label: string;
  /** How many of the API's units one typed unit is. */
  size: number;
};

const UNITS: Record<string, TypedUnit> = {
  ms: { label: "seconds", size: 1_000 },
  ratio: { label: "percent", size: 0.01 },
  "messages/s": { label: "messages per second", size: 1 },
};

export function typedUnit(unit: string | undefined): TypedUnit {
  return UNITS[unit ?? ""] ?? { label: unit ?? "", size: 1 };
}

/** A typed number in the API's unit; products of decimals are not exact, so they are rounded. */
export function toUnit(text: string, unit: string | undefined): number {
  const { size } = typedUnit(unit);
  return Number((Number(text) * size).toPrecision(12));
}

export function fromUnit(value: number, unit: string | undefined): string {
  const { size } = typedUnit(unit);
  return `${Number((value / size).toPrecision(12))}`;
}
