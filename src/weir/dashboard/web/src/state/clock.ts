// The time of day, for what has to be drawn again although nothing arrives.

import { useEffect, useState } from "preact/hooks";

export function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
