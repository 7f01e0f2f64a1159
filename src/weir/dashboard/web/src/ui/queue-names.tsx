// The names of the queues, which inputs with `list="queue-names"` suggest.

import { useApi } from "../state/api";
import { usePoll } from "../state/poll";

export function QueueNames() {
  const { get } = useApi();
  const queues = usePoll(() => get<{ items: { name: string }[] }>("/api/v1/queues"), [], 0);
  return (
    <datalist id="queue-names">
      {queues.data?.items.map(({ name }) => (
        <option key={name} value={name} />
      ))}
    </datalist>
  );
}
