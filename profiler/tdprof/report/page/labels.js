// Names where there is little room: what tells functions apart stays, however long the rest.

// Where the parts of a name are: scope, the function's own name, its parameters.
// "std::vector<int>::push_back(int&&)" is ["std::vector<int>::", "push_back", "(int&&)"].
function nameParts(name) {
  const end = parametersOf(name);
  let depth = 0;
  let own = 0;
  for (let i = 0; i < end; i++) {
    const letter = name[i];
    if ("<([{".includes(letter)) depth++;
    else if (">)]}".includes(letter)) depth = Math.max(0, depth - 1);
    else if (depth === 0 && name.startsWith("::", i)) own = i + 2;
    if (name.startsWith("operator", i) && depth === 0) break;
  }
  return [name.slice(0, own), name.slice(own, end), name.slice(end)];
}

// Where the list of parameters begins: the last bracket that opens outside of all others; the name's end without one.
function parametersOf(name) {
  let depth = 0;
  let at = name.length;
  for (let i = 0; i < name.length; i++) {
    const letter = name[i];
    if (!BRACKETS.includes(letter) || isOperator(name, i)) continue;
    // "(anonymous namespace)::" is a scope, and so is Go's "(*Type)." of a method.
    if (letter === "(" && depth === 0 && i > 0 && name[i - 1] !== "." && !name.startsWith("(anonymous", i)) at = i;
    if ("<([{".includes(letter)) depth++;
    else if (">)]}".includes(letter) && name[i - 1] !== "-") depth = Math.max(0, depth - 1);
  }
  return at;
}

const BRACKETS = "<>()[]{}";
const isOperator = (name, i) => /operator[^\w]{0,2}$/.test(name.slice(Math.max(0, i - 10), i)) && !/operator\(\)$/.test(name.slice(0, i));

// Template arguments and what stands between brackets become "…".
function withoutArguments(text) {
  let depth = 0;
  let result = "";
  for (let i = 0; i < text.length; i++) {
    const letter = text[i];
    const isOpen = letter === "<" && !result.endsWith("operator");
    if (isOpen && depth++ === 0) result += "<…";
    if (letter === ">" && depth > 0 && text[i - 1] !== "-" && --depth === 0) result += ">";
    else if (depth === 0 && !isOpen) result += letter;
  }
  return depth ? text : result;
}

// The beginning and the end, of which the end has more room: C++ names differ there.
function cutInTheMiddle(text, most) {
  if (text.length <= most) return text;
  const tail = most < 10 ? 0 : Math.ceil((most - 1) * 0.6); // of a few letters the first say most
  return `${text.slice(0, most - 1 - tail)}…${text.slice(text.length - tail)}`;
}

// "JS:parse /srv/lib/parse.js:10:4" is ["JS:parse ", "/srv/lib/", "parse.js:10:4"]; null for a name without such a place.
const placeParts = (name) => /^(\S.* )(\S*\/)([^/ ]+:\d+)$/.exec(name)?.slice(1) ?? null;

// Ever shorter forms of a name: without parameters, without template arguments, without scopes; of one with its place
// without folders, without the place.
function shorterForms(name) {
  const placed = placeParts(name);
  if (placed) return [placed[0] + placed[2], placed[0].trimEnd()];
  const [scope, own, parameters] = nameParts(name);
  const bare = scope + own;
  const plain = withoutArguments(bare);
  const forms = parameters || scope || plain !== bare ? [bare, plain, plain.slice(nameParts(plain)[0].length)] : [];
  return [...new Set(forms.filter((form) => form && form.length < name.length))];
}

class Labels {
  constructor(names) {
    this.names = names;
    this.forms = names.map(() => null);
    this.owners = null;
  }

  formsOf(id) {
    this.forms[id] ??= shorterForms(this.names[id]);
    return this.forms[id];
  }

  // How many functions have a form: one of several is no name for any of them.
  countOf(form) {
    if (!this.owners) {
      this.owners = new Map();
      this.names.forEach((name, id) => {
        for (const each of new Set([name, ...this.formsOf(id)])) this.owners.set(each, (this.owners.get(each) ?? 0) + 1);
      });
    }
    return this.owners.get(form) ?? 0;
  }

  // At most so many letters of a name; "" where none would say anything.
  shorten(id, most) {
    const name = this.names[id];
    if (name.length <= most) return name;
    if (most < 3) return "";
    const apart = this.formsOf(id).filter((form) => this.countOf(form) === 1);
    const fitting = apart.find((form) => form.length <= most);
    if (fitting) return fitting;
    return cutInTheMiddle(apart[apart.length - 1] ?? name, most);
  }
}

// A name for a line of text: its parameters give way first, then its scope; its own name stays.
function nameSpans(name) {
  if (name.length <= 32) return [el("span", { class: "own" }, name)];
  const placed = placeParts(name);
  if (placed) return [...placed.keys()].map((i) => el("span", { class: i === 1 ? "parameters" : "own" }, placed[i]));
  const [scope, own, parameters] = nameParts(name);
  return [
    scope ? el("span", { class: "scope" }, scope) : null,
    el("span", { class: "own" }, own),
    parameters ? el("span", { class: "parameters" }, parameters) : null,
  ];
}

// What is said of a name beside it: why there is none, or that a caller was guessed.
const markOf = (model, id) => (model.mark(id) ? el("span", { class: "tag mark-of-name" }, model.mark(id)) : null);
