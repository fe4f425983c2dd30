// Requests to the service: errors become sentences, and of several pending requests only the newest is sent.

const TOKEN = "torchcaps-token"; // kept in this tab, and only for this origin

/** Send this token with every further request. */
export function useToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** Whether there is a token. */
export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

const authorization = () => (hasToken() ? { authorization: `Bearer ${sessionStorage.getItem(TOKEN)}` } : {});

/** GET a path of the service. */
export async function get(path) {
  return answer(await fetch(path, { headers: authorization() }));
}

/** POST a JSON request. */
export async function ask(path, request) {
  const headers = { "content-type": "application/json", ...authorization() };
  return answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(request) }));
}

async function answer(response) {
  const said = await response.json().catch(() => ({ detail: `the service responded with status ${response.status}` }));
  if (!response.ok) throw Object.assign(new Error(said.detail), { status: response.status });
  return said;
}

/**
 * Run the work for the newest arguments only: while it runs, newer arguments replace those that wait.
 * So a slow model never lags behind the pen.
 */
export function latest(work) {
  let running = false;
  let waiting = null;
  return async function run(...given) {
    waiting = given;
    if (running) return;
    running = true;
    while (waiting) {
      const next = waiting;
      waiting = null;
      try {
        await work(...next);
        report(null);
      } catch (error) {
        report(error);
      }
    }
    running = false;
  };
}

/** Show an error below the panel, or hide it. */
export function report(error) {
  const place = document.getElementById("problem");
  place.hidden = !error;
  if (error) place.textContent = sentence(error);
}

function sentence(error) {
  if (error instanceof TypeError && /fetch/i.test(error.message)) {
    return "The service does not respond. If it was stopped, start it with 'torchcaps demo'.";
  }
  return error.message.charAt(0).toUpperCase() + error.message.slice(1) + ".";
}

let pending = 0;

/** Announce a text to screen readers once updates have settled. */
export function announce(text) {
  clearTimeout(pending);
  pending = setTimeout(() => (document.getElementById("live").textContent = text), 700);
}
