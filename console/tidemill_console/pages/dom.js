// Elements out of values. A value becomes text and never markup: nothing here parses HTML, and the policy that the
// files come with (trusted types) refuses whoever would.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) {
      if (typeof value !== "function") throw new TypeError(`${name} is no function`);
      node.addEventListener(name.slice(2), value);
    } else if (name === "href" && !String(value).startsWith("#/")) {
      throw new TypeError("links lead to views of the console only");
    } else if (value === true) node.setAttribute(name, "");
    else node.setAttribute(name, String(value));
  }
  put(node, children);
  return node;
}

export function put(node, ...children) {
  const some = children.flat(Infinity).filter((one) => one !== undefined && one !== null && one !== false);
  node.append(...some.map((one) => (one instanceof Node ? one : document.createTextNode(String(one)))));
  return node;
}

export function clear(node, ...children) {
  node.replaceChildren();
  return put(node, ...children);
}

// Sets a text only when it is another one: what a person has marked stays marked.
export function say(node, text) {
  const said = String(text);
  if (node.textContent !== said) node.textContent = said;
}

// What somebody else wrote: kept apart from the words around it, also when it is written from right to left.
export function data(text, more = "") {
  return h("bdi", { class: `data ${more}`.trim() }, text);
}

export function link(view, parts, text, more = {}) {
  const path = [view, ...parts].map(encodeURIComponent).join("/");
  return h("a", { href: `#/${path}`, ...more }, text);
}

export function button(text, act, more = {}) {
  return h("button", { type: "button", onclick: act, ...more }, text);
}

export function field(label, input) {
  return h("label", { class: "field" }, h("span", {}, label), input);
}

export function choice(label, options, value, act) {
  const select = h("select", { onchange: () => act(select.value) });
  for (const [name, text] of options) select.append(h("option", { value: name, selected: name === value }, text));
  return field(label, select);
}
