// Asking the service: errors become sentences, and of many questions in a row only the newest matters.

const TOKEN = "torchcaps-token"; // kept by this tab, and only for this address

/** Send this token with every request from now on. */
export function useToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** Whether a token is sent. */
export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

const authorization = () => (hasToken() ? { authorization: `Bearer ${sessionStorage.getItem(TOKEN)}` } : {});

/** Read JSON from a path of this service. */
export async function get(path) {
  return answer(await fetch(path, { headers: authorization() }));
}

/** Ask a question in JSON. */
export async function ask(path, question) {
  const headers = { "content-type": "application/json", ...authorization() };
  return answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(question) }));
}

async function answer(response) {
  const said = await response.json().catch(() => ({ detail: `the service answered ${response.status}` }));
  if (!response.ok) throw Object.assign(new Error(said.detail), { status: response.status });
  return said;
}

/**
 * Run the work for the newest argument only: while it runs, a newer argument waits and replaces what waited before.
 * So a slow model never falls behind the pen.
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

/** Show a problem below the panel, or take it away. */
export function report(error) {
  const place = document.getElementById("problem");
  place.hidden = !error;
  if (error) place.textContent = sentence(error);
}

function sentence(error) {
  if (error instanceof TypeError && /fetch/i.test(error.message)) {
    return "The service does not answer: was it stopped? Start it with 'torchcaps demo'.";
  }
  return error.message.charAt(0).toUpperCase() + error.message.slice(1) + ".";
}

let pending = 0;

/** Tell screen readers, once things have come to rest. */
export function announce(text) {
  clearTimeout(pending);
  pending = setTimeout(() => (document.getElementById("live").textContent = text), 700);
}
