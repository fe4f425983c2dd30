// The API documentation, built from the OpenAPI description.

const description = await (await fetch("/openapi.json")).json();
const make = (name, text = "", ...children) => {
  const element = document.createElement(name);
  element.append(text, ...children);
  return element;
};
const resolve = (schema) => (schema.$ref ? description.components.schemas[schema.$ref.split("/").at(-1)] : schema);

/** Describe a type in a few words. */
function words(schema) {
  if (schema.$ref) return words(resolve(schema));
  if (schema.anyOf) return [...new Set(schema.anyOf.map(words))].join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.type === "array") return `list of ${words(schema.items)}`;
  if (schema.type === "object" && schema.properties) return `{${Object.keys(schema.properties).join(", ")}}`;
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  const range = low !== undefined && high !== undefined ? ` ${low} to ${high}` : "";
  return `${schema.type ?? "any"}${range}${schema.default !== undefined ? `, default ${JSON.stringify(schema.default)}` : ""}`;
}

function fields(title, schema) {
  const found = resolve(schema.type === "array" ? schema.items : schema);
  if (!found.properties) return [];
  const rows = Object.entries(found.properties).map(([name, each]) => {
    const needed = found.required?.includes(name) ? "" : ", optional";
    return make("tr", "", make("td", "", make("code", name)), make("td", words(each) + needed), make("td", each.description ?? ""));
  });
  return [make("h3", title), make("table", "", ...rows)];
}

document.getElementById("about").textContent = description.info.description;
for (const [path, methods] of Object.entries(description.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    const body = operation.requestBody?.content["application/json"].schema;
    const answer = operation.responses[200]?.content?.["application/json"]?.schema;
    const section = make("section", "", make("h2", "", make("b", method.toUpperCase()), ` ${path}`), make("p", `${operation.summary}.`));
    if (operation.parameters) section.append(make("p", `Parameters: ${operation.parameters.map((each) => each.name).join(", ")}.`));
    if (body) section.append(...fields("Request", body));
    if (operation.requestBody?.content["multipart/form-data"]) {
      section.append(make("p", "", "Or upload an image file: ", make("code", `curl -F image=@digit.png ${location.origin}${path}`), "."));
    }
    if (answer) section.append(...fields("Response", answer));
    document.getElementById("paths").append(section);
  }
}
