// BullMQ, measured in the same way as the Python peers: one by one, in bulk, and with one worker process.
//   node peer.mjs REDIS_URL JOBS BATCH
import { readFileSync } from "node:fs";
import { Queue, Worker } from "bullmq";

const [url, jobsText, batchText] = process.argv.slice(2);
const jobs = Number(jobsText);
const batch = Number(batchText);
const parts = new URL(url);
const connection = {
  host: parts.hostname,
  port: Number(parts.port),
  password: decodeURIComponent(parts.password) || undefined,
  maxRetriesPerRequest: null,
};
const options = { removeOnComplete: true, removeOnFail: true };
const seconds = () => Number(process.hrtime.bigint()) / 1e9;
const queue = new Queue("bench", { connection });
await queue.waitUntilReady();

const half = Math.floor(jobs / 2);
let started = seconds();
for (let number = 0; number < half; number++) await queue.add("noop", { number }, options);
const enqueue = half / (seconds() - started);

started = seconds();
for (let from = half; from < jobs; from += batch) {
  const many = [];
  for (let number = from; number < Math.min(from + batch, jobs); number++) {
    many.push({ name: "noop", data: { number }, opts: options });
  }
  await queue.addBulk(many);
}
const bulk = (jobs - half) / (seconds() - started);

let count = 0;
let first = 0;
await new Promise((resolve) => {
  const worker = new Worker(
    "bench",
    async () => {
      if (count === 0) first = seconds();
      count += 1;
      if (count === jobs) resolve();
    },
    { connection, concurrency: 100 },
  );
  worker.on("error", () => {});
});
const process_per_s = (jobs - 1) / (seconds() - first);
console.log(
  JSON.stringify({
    enqueue_per_s: Math.round(enqueue),
    bulk_enqueue_per_s: Math.round(bulk),
    process_per_s: Math.round(process_per_s),
    has_bulk: true,
    memory_mib: Math.round(Number(/VmHWM:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1]) / 102.4) / 10,
  }),
);
process.exit(0);
