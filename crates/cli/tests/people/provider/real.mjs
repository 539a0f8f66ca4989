// A real identity provider for tests. Prints its URL. `POST /setup?redirect=URL` makes it ready; `GET /as?person=NAME`
// chooses who signs in next; every person consents at once.
import http from "node:http";
import crypto from "node:crypto";
import { Provider } from "oidc-provider";

const people = {
  alice: { name: "Alice <Admin>", groups: ["everyone", "gpu-admins"] },
  bob: { name: "Bob", groups: ["nlp", "everyone"] },
  mallory: { name: "Mallory", groups: ["everyone"] },
};

// Nothing reads what follows the URL: a write to the closed pipe would end the process.
console.info = () => {};

let person = "alice";
let handle = null;

function setUp(issuer, redirect) {
  const { privateKey } = crypto.generateKeyPairSync("rsa", { modulusLength: 2048 });
  const key = { ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: crypto.randomUUID() };
  const provider = new Provider(issuer, {
    jwks: { keys: [key] },
    clients: [
      {
        client_id: "bursar", client_secret: "a secret: +/%", redirect_uris: [redirect],
        post_logout_redirect_uris: [new URL("/", redirect).href], response_types: ["code"],
      },
    ],
    cookies: { keys: [crypto.randomUUID()] },
    pkce: { required: () => true },
    claims: { openid: ["sub"], profile: ["name"], groups: ["groups"] },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...people[id] }) }),
  });
  const callback = provider.callback();
  handle = async (request, response) => {
    if (!request.url.startsWith("/interaction/")) return callback(request, response);
    const { params, session } = await provider.interactionDetails(request, response);
    const accountId = session?.accountId ?? person;
    const grant = new provider.Grant({ accountId, clientId: params.client_id });
    grant.addOIDCScope(params.scope);
    const result = { login: { accountId }, consent: { grantId: await grant.save() } };
    return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
  };
}

const server = http.createServer(async (request, response) => {
  const url = new URL(request.url, "http://localhost");
  const issuer = `http://127.0.0.1:${server.address().port}`;
  if (url.pathname === "/setup") {
    setUp(issuer, url.searchParams.get("redirect"));
    return response.end("ready");
  }
  if (url.pathname === "/as") {
    person = url.searchParams.get("person");
    return response.end(person);
  }
  return handle(request, response);
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
