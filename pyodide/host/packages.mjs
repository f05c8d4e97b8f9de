// Packages: wheels that the Go program has resolved, downloaded and checked, and that Pyodide's own
// loader unpacks.

// packageCalls are the calls that make packages importable. Nothing is downloaded: the loader asks
// for files that are here already.
export function packageCalls(py, disk, site) {
  const files = new Map();
  const { find_imports: findImports } = py.pyimport("pyodide.code");
  return {
    wheel({ path, data }) {
      files.set(path, data.slice());
      return {};
    },

    async load({ max: room, data }) {
      const { packages } = JSON.parse(new TextDecoder().decode(data));
      py._api.lockfile_packages = { __proto__: null, ...packages };
      const names = Object.keys(packages);
      const problems = [];
      globalThis.fetch = async (url) => {
        const data = files.get(decodeURIComponent(String(url).split("/").pop()));
        if (!data) throw new TypeError(`${url} is not there`);
        return { ok: true, status: 200, arrayBuffer: async () => data.buffer };
      };
      globalThis.btoa = () => ""; // used for checksums, which were checked before
      try {
        await disk.system(site, room, () =>
          py.loadPackage(names, { checkIntegrity: false, messageCallback() {}, errorCallback: (m) => problems.push(m) }),
        );
      } finally {
        delete globalThis.fetch;
        delete globalThis.btoa;
        files.clear();
      }
      const missing = names.filter((n) => !Object.hasOwn(py.loadedPackages, packages[n].name));
      if (missing.length) throw new Error(`not loaded: ${missing.join(", ")}: ${problems.join("; ")}`);
      return {};
    },

    imports({ data }) {
      let found = [];
      try {
        const list = findImports(new TextDecoder().decode(data));
        found = list.toJs().map(String);
        list.destroy();
      } catch {
        // The code cannot be parsed. Running it will report that.
      }
      return { modules: found };
    },
  };
}
