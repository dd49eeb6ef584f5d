"""The page at /docs: a reader of /openapi.json that needs nothing from any other site, so it works without internet."""

SECURITY_POLICY = "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; frame-ancestors 'none'"

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>warmroute control plane</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
  pre, textarea, code { font: 13px/1.45 ui-monospace, monospace; }
  textarea { width: 100%; box-sizing: border-box; }
  pre { overflow-x: auto; padding: .6rem; border: 1px solid #8886; border-radius: 4px; }
  details { border-top: 1px solid #8884; padding: .3rem 0; }
  details details { margin-left: 1.2rem; border: 0; }
  summary { cursor: pointer; }
  td, th { text-align: left; vertical-align: top; padding: .15rem .8rem .15rem 0; }
  .note { color: #888; }
</style>
</head>
<body>
<h1>warmroute control plane</h1>
<p id="about"></p>
<p>The same as a machine reads it: <a href="/openapi.json">openapi.json</a></p>
<main id="operations"></main>
<script>
"use strict";
const make = (tag, text, ...children) => {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
};

fetch("/openapi.json").then(answer => answer.json()).then(api => {
  document.getElementById("about").textContent = api.info.description;
  const resolve = schema => {
    if (schema.anyOf) schema = { ...schema.anyOf.find(one => one.type !== "null"), ...schema, anyOf: undefined };
    if (schema.$ref) schema = { ...api.components.schemas[schema.$ref.split("/").pop()], ...schema, $ref: undefined };
    return schema.anyOf ? resolve(schema) : schema;
  };
  const limits = schema => [
    ["minimum", "at least "], ["maximum", "at most "], ["minLength", "length from "], ["maxLength", "length to "],
    ["minItems", "items from "], ["maxItems", "items to "], ["pattern", "pattern "], ["default", "default "],
  ].filter(([key]) => schema[key] != null).map(([key, text]) => text + schema[key]).join(", ");
  const table = schema => {
    const rows = Object.entries(schema.properties || {}).map(([name, raw]) => {
      const member = resolve(raw), item = member.items ? resolve(member.items) : null;
      const inner = [member, item].find(one => one && one.properties);
      const set = member.enum || (item && item.enum) || [];
      const values = set.length > 12 ? set.slice(0, 3).join(" | ") + " | ... (" + set.length + ")" : set.join(" | ");
      const cell = make("td", [limits(member), values].filter(Boolean).join("; "));
      if (raw.description) cell.append(" ", Object.assign(make("span", raw.description), { className: "note" }));
      if (inner) cell.append(make("details", "", make("summary", "members"), table(inner)));
      const type = member.type === "array" ? "list" + (item ? " of " + item.type : "") : member.type;
      const required = (schema.required || []).includes(name) ? " (required)" : "";
      return make("tr", "", make("td", "", make("code", name), required), make("td", type), cell);
    });
    return make("table", "", ...rows);
  };
  const form = (path, operation) => {
    const body = operation.requestBody.content["application/json"];
    const input = make("textarea", JSON.stringify(body.example, null, 2));
    input.rows = input.value.split("\\n").length + 1;
    input.setAttribute("aria-label", "request body");
    const button = make("button", "Send"), result = make("pre");
    result.hidden = true;
    button.onclick = async () => {
      const answer = await fetch(path, { method: "POST", body: input.value });
      const text = await answer.text();
      let shown = text;
      try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* shown as it came */ }
      result.textContent = answer.status + "\\n" + shown;
      result.hidden = false;
    };
    return [make("p", operation.description), input, button, result,
            make("details", "", make("summary", "Members"), table(resolve(body.schema)))];
  };
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    const operation = methods.post;
    if (!operation) continue;
    const title = make("summary", "", make("code", "POST " + path), " " + operation.summary);
    const group = operation.tags[0];
    groups.set(group, [...(groups.get(group) || []), make("details", "", title, ...form(path, operation))]);
  }
  for (const [group, operations] of groups)
    document.getElementById("operations").append(make("h2", group), ...operations);
});
</script>
</body>
</html>
"""
