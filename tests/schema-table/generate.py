#!/usr/bin/env python3
"""Writes the compact schema table of Kubernetes' built-in kinds.

The table is what hub/apiserver embeds: every field's type, list and map
semantics, patch metadata, required fields, enums and defaults, and the list of
resources with their verbs and short names. No descriptions.

Read from a running API server (enums included: a server publishes them):

    generate.py --server https://127.0.0.1:6443 --token T --ca ca.crt

or from the files that the kubernetes repository keeps under api/, whose enums
are read from the generated Go source because the saved files leave them out:

    generate.py --dir "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)"

Only stable versions are taken: alpha and beta ones are off by default.
The output is deterministic: the same input gives the same bytes.
"""

import argparse
import gzip
import json
import os
import re
import ssl
import sys
import urllib.request

DEFAULT_OUTPUT = os.path.join(
    os.path.dirname(os.path.abspath(__file__)),
    "../../hub/apiserver/schema/kubernetes-1.35.json.gz",
)
REF = "#/components/schemas/"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"
STABLE = re.compile(r"^v[0-9]+$")
# Groups that only the API server itself, or the aggregator, can serve.
EXCLUDED_GROUPS = {"internal.apiserver.k8s.io"}


class Server:
    """Reads documents from a running API server."""

    def __init__(self, url, token, ca, insecure):
        self.url, self.token = url.rstrip("/"), token
        self.context = ssl.create_default_context(cafile=ca) if url.startswith("https") else None
        if insecure and self.context:
            self.context.check_hostname = False
            self.context.verify_mode = ssl.CERT_NONE

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers={"Accept": "application/json"})
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        with urllib.request.urlopen(request, context=self.context, timeout=60) as response:
            return json.load(response)

    def version(self):
        return self.get("/version")["gitVersion"]

    def group_versions(self):
        yield "", "v1"
        for group in self.get("/apis")["groups"]:
            for version in group["versions"]:
                yield group["name"], version["version"]

    def resources(self, group, version):
        return self.get(root(group, version))["resources"]

    def schemas(self, group, version):
        return self.get("/openapi/v3" + root(group, version)).get("components", {}).get("schemas", {})

    def enums(self):
        return {}


class Directory:
    """Reads the files of a kubernetes source tree."""

    def __init__(self, directory):
        self.directory = directory

    def load(self, *parts):
        with open(os.path.join(self.directory, "api", *parts), encoding="utf-8") as file:
            return json.load(file)

    def version(self):
        found = re.search(r"@(v[0-9.]+)$", self.directory.rstrip("/"))
        return found.group(1) if found else "unknown"

    def group_versions(self):
        yield "", "v1"
        for group in self.load("discovery", "apis.json")["groups"]:
            for version in group["versions"]:
                yield group["name"], version["version"]

    def resources(self, group, version):
        return self.load("discovery", root(group, version).strip("/").replace("/", "__") + ".json")["resources"]

    def schemas(self, group, version):
        name = root(group, version).strip("/").replace("/", "__") + "_openapi.json"
        return self.load("openapi-spec", "v3", name).get("components", {}).get("schemas", {})

    def enums(self):
        """Maps (type name, field) to its enum, from the generated Go source."""
        path = os.path.join(self.directory, "pkg/generated/openapi/zz_generated.openapi.go")
        if not os.path.exists(path):
            return {}
        found, function, field = {}, None, None
        start = re.compile(r"^func schema_(\w+)\(")
        with open(path, encoding="utf-8") as file:
            for line in file:
                if match := start.match(line):
                    function, field = "_".join(match.group(1).split("_")[-3:]), None
                elif match := re.match(r'^\t{5,6}"([^"]+)": \{$', line):
                    field = match.group(1)
                elif (match := re.search(r"Enum:\s+\[\]interface\{\}\{(.*)\}", line)) and field:
                    found[(function, field)] = json.loads("[" + match.group(1) + "]")
        return found


def root(group, version):
    return "/apis/%s/%s" % (group, version) if group else "/api/" + version


def go_function(name):
    """What ends the generated Go function of a component: io.k8s.api.core.v1.Pod -> core_v1_Pod."""
    return "_".join(name.split(".")[-3:])


class Builder:
    """Interns schema nodes; node 0 is the free-form value."""

    def __init__(self, enums):
        self.nodes = [{"t": "*"}]
        self.interned = {}
        self.named = {}
        self.schemas = {}
        self.enums = enums

    def add(self, schemas):
        for name, schema in schemas.items():
            self.schemas.setdefault(name, schema)

    def type(self, name):
        if name not in self.named:
            self.named[name] = len(self.nodes)
            self.nodes.append(None)
            node = self.node(self.schemas[name], name)
            node["n"] = name
            gvks = self.schemas[name].get("x-kubernetes-group-version-kind")
            if gvks and len(gvks) == 1:
                node["g"] = [gvks[0]["group"], gvks[0]["version"], gvks[0]["kind"]]
            self.nodes[self.named[name]] = node
        return self.named[name]

    def intern(self, node):
        key = json.dumps(node, sort_keys=True)
        if key not in self.interned:
            self.interned[key] = len(self.nodes)
            self.nodes.append(node)
        return self.interned[key]

    def reference(self, schema, owner, field):
        """The node id of a property, item or value schema."""
        target = schema.get("$ref") or next((s["$ref"] for s in schema.get("allOf", []) if "$ref" in s), None)
        attributes = self.attributes(schema, owner, field)
        if target is None:
            return self.intern(self.node(schema, owner, field))
        base = self.type(target.removeprefix(REF))
        if not attributes:
            return base
        # A reference with attributes of its own: a variant of the named type.
        return self.intern({"b": base, **attributes})

    def attributes(self, schema, owner, field):
        out = {}
        for key, short in (
            ("x-kubernetes-map-type", "m"),
            ("x-kubernetes-patch-strategy", "p"),
            ("x-kubernetes-patch-merge-key", "mk"),
            ("x-kubernetes-list-type", "l"),
            ("x-kubernetes-list-map-keys", "k"),
        ):
            if key in schema:
                out[short] = schema[key]
        # An empty object as default marks a Go struct held by value: always present.
        if schema.get("default") == {}:
            out["z"] = 1
        elif schema.get("default") is not None:
            out["d"] = schema["default"]
        enum = schema.get("enum") or self.enums.get((go_function(owner), field))
        if enum and schema.get("type") == "string":
            out["e"] = sorted(enum)
        return out

    def node(self, schema, owner, field=None):
        out = self.attributes(schema, owner, field)
        kind, form = schema.get("type"), schema.get("format")
        if owner == QUANTITY and field is None:
            out["t"] = "q"
        elif owner == RAW_EXTENSION and field is None:
            out["t"], out["m"] = "*", "atomic"
        elif form == "int-or-string":
            out["t"] = "x"
        elif kind == "string":
            out["t"] = {"date-time": "T", "byte": "y"}.get(form, "s")
        elif kind in ("integer", "number", "boolean"):
            out["t"] = {"integer": "i", "number": "n", "boolean": "b"}[kind]
            if form == "int32":
                out["t"] = "j"
        elif kind == "array":
            out["t"], out["i"] = "l", self.reference(schema["items"], owner, field)
        elif kind == "object":
            out["t"] = "o"
            fields = [
                [name, self.reference(value, owner, name)]
                for name, value in sorted(schema.get("properties", {}).items())
            ]
            if fields:
                out["f"] = fields
            if schema.get("required"):
                out["r"] = sorted(schema["required"])
            extra = schema.get("additionalProperties")
            if isinstance(extra, dict):
                out["a"] = self.reference(extra, owner, field)
            elif extra is True or (extra is None and not fields):
                out["a"] = 0
        else:
            out["t"] = "*"
        return out


def gvk_type(builder, group, version, kind):
    for name, schema in builder.schemas.items():
        for gvk in schema.get("x-kubernetes-group-version-kind", []):
            if (gvk["group"], gvk["version"], gvk["kind"]) == (group, version, kind):
                yield name


def build(source):
    builder = Builder(source.enums())
    group_versions = [
        (group, version)
        for group, version in source.group_versions()
        if STABLE.match(version) and group not in EXCLUDED_GROUPS
    ]
    for group, version in group_versions:
        builder.add(source.schemas(group, version))

    resources, kinds = [], {}
    for group, version in group_versions:
        listed = {entry["name"]: entry for entry in source.resources(group, version)}
        for name, entry in listed.items():
            if "/" in name:
                continue
            resource = {
                "group": group,
                "version": version,
                "kind": entry["kind"],
                "plural": name,
                "singular": entry.get("singularName") or entry["kind"].lower(),
                "namespaced": entry["namespaced"],
                "verbs": sorted(entry["verbs"]),
            }
            for key in ("shortNames", "categories", "storageVersionHash"):
                if entry.get(key):
                    resource[key] = entry[key]
            subresources = []
            for other, sub in listed.items():
                if other.startswith(name + "/"):
                    subresources.append({
                        "name": other.split("/", 1)[1],
                        "group": sub.get("group", group if "version" not in sub else ""),
                        "version": sub.get("version", version),
                        "kind": sub["kind"],
                        "verbs": sorted(sub["verbs"]),
                    })
            if subresources:
                resource["subresources"] = subresources
            resources.append(resource)
            wanted = {(group, version, entry["kind"])}
            wanted.update((s["group"], s["version"], s["kind"]) for s in subresources)
            for gvk in wanted:
                for type_name in sorted(gvk_type(builder, *gvk))[:1]:
                    kinds[gvk] = type_name
    # What every server answers with, whichever resources it has.
    for kind in ("Status", "DeleteOptions"):
        name = "io.k8s.apimachinery.pkg.apis.meta.v1." + kind
        if name in builder.schemas:
            builder.type(name)
    for kind in ("ObjectMeta", "ListMeta"):
        builder.type("io.k8s.apimachinery.pkg.apis.meta.v1." + kind)

    return {
        "version": source.version(),
        "kinds": [[*gvk, builder.type(name)] for gvk, name in sorted(kinds.items())],
        "resources": resources,
        "nodes": builder.nodes,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server", help="address of a running API server")
    where.add_argument("--dir", help="directory of the k8s.io/kubernetes module")
    parser.add_argument("--token", help="bearer token for --server")
    parser.add_argument("--ca", help="CA file for --server")
    parser.add_argument("--insecure", action="store_true", help="do not verify the server's certificate")
    parser.add_argument("--output", default=DEFAULT_OUTPUT)
    parser.add_argument("--plain", action="store_true", help="write JSON lines that diff well, uncompressed")
    args = parser.parse_args()

    source = Directory(args.dir) if args.dir else Server(args.server, args.token, args.ca, args.insecure)
    table = build(source)
    if args.plain:
        text = "\n".join(json.dumps(node, sort_keys=True) for node in table["resources"] + table["nodes"]) + "\n"
        data = text.encode()
    else:
        # mtime 0 and no file name: the same table gives the same bytes.
        data = gzip.compress(json.dumps(table, separators=(",", ":"), sort_keys=True).encode(), 9, mtime=0)
    with open(args.output, "wb") as file:
        file.write(data)
    print(
        "%s: %d kinds, %d resources, %d nodes, %d bytes"
        % (table["version"], len(table["kinds"]), len(table["resources"]), len(table["nodes"]), len(data)),
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
