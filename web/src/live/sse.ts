/** One server-sent event. */
export interface ServerEvent {
  id: string | undefined;
  event: string;
  data: string;
}

/** Splits a stream of text into server-sent events. Feed it chunks; it returns whole events. */
export class EventParser {
  private rest = "";
  private id: string | undefined;
  private event = "";
  private data: string[] = [];

  push(chunk: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    const text = this.rest + chunk;
    const lines = text.split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line !== "") {
        this.field(line);
        continue;
      }
      if (this.data.length) {
        events.push({ id: this.id, event: this.event || "message", data: this.data.join("\n") });
      }
      this.event = "";
      this.data = [];
    }
    return events;
  }

  private field(line: string) {
    if (line.startsWith(":")) return;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "id" && !value.includes("\0")) this.id = value;
    if (name === "event") this.event = value;
    if (name === "data") this.data.push(value);
  }
}
