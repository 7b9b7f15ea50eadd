// Talks to the service that the page is of. A refusal is a Refusal with the sentence that people read.

export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `status ${status}`);
    this.status = status;
    this.leader = problem.leader || null;
  }
}

export async function ask(method, path, body, headers = {}) {
  const options = { method, headers: { ...headers }, credentials: "same-origin" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  let problem = {};
  try {
    problem = await answer.json();
  } catch {
    problem = { title: `${answer.status} ${answer.statusText}` };
  }
  if (answer.status === 401) window.dispatchEvent(new Event("signed-out"));
  throw new Refusal(answer.status, problem);
}

export const get = (path) => ask("GET", path);

export const session = () => get("/session");

export async function signIn(token) {
  const answer = await fetch("/session", { method: "POST", body: token, credentials: "same-origin" });
  if (!answer.ok) throw new Refusal(answer.status, await answer.json());
}

export const signOut = () => ask("DELETE", "/session");
