/** Calls of the API with a key, as scripts make them. */
export interface Reply<T = any> {
  status: number;
  body: T;
}

export class Api {
  constructor(readonly url: string, readonly key: string) {}

  async call<T = any>(method: string, path: string, body?: unknown): Promise<Reply<T>> {
    const response = await fetch(this.url + path, {
      method,
      headers: { Authorization: `Bearer ${this.key}`, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: text ? JSON.parse(text) : undefined };
  }

  /** A call that must succeed. */
  async ok<T = any>(method: string, path: string, body?: unknown): Promise<T> {
    const { status, body: answer } = await this.call<T>(method, path, body);
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${JSON.stringify(answer)}`);
    return answer;
  }

  get = <T = any>(path: string) => this.ok<T>("GET", path);
  post = <T = any>(path: string, body?: unknown) => this.ok<T>("POST", path, body);
  put = <T = any>(path: string, body: unknown) => this.ok<T>("PUT", path, body);

  async advance(seconds: number): Promise<number> {
    return Date.parse((await this.post<{ now: string }>("/v1/clock", { advance_seconds: seconds })).now);
  }

  /** The secret of a new key. */
  async makeKey(role: string, scope: string, name = `${role} of ${scope}`): Promise<string> {
    return (await this.post<{ key: string }>("/v1/keys", { role, scope, name })).key;
  }
}
