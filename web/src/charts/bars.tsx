import { formatAmount, formatShare, perMille, visible, type Micros } from "../format";
import { Amount, type Tone } from "../ui/basics";

/** Width in percent, with one decimal: only geometry. */
const width = (part: Micros, whole: Micros) => `${Math.max(0, Math.min(1000, perMille(part, whole))) / 10}%`;

/** Parts of a whole on one line. */
export function Bar({ parts, whole, label }: { parts: [Micros, Tone][]; whole: Micros; label: string }) {
  return (
    <span className="bar" role="img" aria-label={label}>
      {parts.map(([part, tone], i) => <i key={i} className={`tone-${tone}${tone === "violet" ? " hatch" : ""}`} style={{ width: width(part, whole) }} />)}
    </span>
  );
}

/** Spent and held against a limit, with its thresholds. */
export function Bullet({ spent, held, limit, thresholds, name }: { spent: Micros; held: Micros; limit: Micros; thresholds: number[]; name: string }) {
  const used = spent + held;
  const whole = used > limit ? used : limit;
  const at = (percent: number) => width((limit * BigInt(percent)) / 100n, whole);
  return (
    <div className="bullet" role="img" aria-label={`${name}: ${formatAmount(spent)} spent and ${formatAmount(held)} held of ${formatAmount(limit)}, ${formatShare(used, limit)}`}>
      <Bar parts={[[spent, "blue"], [held, "violet"]]} whole={whole} label={name} />
      {thresholds.filter((percent) => percent < 100).map((percent) => <i key={percent} className="tick" style={{ left: at(percent) }} />)}
      <i className="limit" style={{ left: `calc(${at(100)} - 2px)` }} />
    </div>
  );
}

/** Left of the middle: less than entitled. Right: more. */
export function Diverging({ value, most, label }: { value: Micros; most: Micros; label: string }) {
  const size = value < 0n ? -value : value;
  const bar = <i className={value < 0n ? "tone-violet" : "tone-blue"} style={{ width: width(size, most) }} />;
  return (
    <div className="diverge" role="img" aria-label={label}>
      <span>{value < 0n ? bar : null}</span><span>{value > 0n ? bar : null}</span>
    </div>
  );
}

export interface WaterfallStep {
  name: string;
  amount: Micros;
  tone: Tone;
  /** Starts again from zero. */
  total?: boolean;
}

/** Each step begins where the last one ended. The amounts beside it are its table. */
export function Waterfall({ steps, label }: { steps: WaterfallStep[]; label: string }) {
  let level = 0n;
  const spans = steps.map((step) => {
    const from = step.total ? 0n : level;
    const to = step.total ? step.amount : level + step.amount;
    level = to;
    return { step, low: from < to ? from : to, high: from < to ? to : from };
  });
  const most = spans.reduce((max, { high }) => (high > max ? high : max), 1n);
  return (
    <div className="waterfall" role="table" aria-label={label}>
      {spans.map(({ step, low, high }) => (
        <div key={step.name} role="row" style={{ display: "contents" }}>
          <span role="rowheader" className={step.total ? "total" : ""}>{visible(step.name)}</span>
          <span role="cell" aria-hidden="true" className={step.total ? "track total" : "track"}><i className={`tone-${step.tone}`} style={{ left: width(low, most), width: width(high - low, most) }} /></span>
          <span role="cell" className={step.total ? "amount total" : "amount"}><Amount value={step.amount} signed={!step.total} /></span>
        </div>
      ))}
    </div>
  );
}
