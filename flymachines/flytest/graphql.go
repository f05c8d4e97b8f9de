package flytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Fly's second API is GraphQL. flyctl asks it for the app and its organization before it speaks to
// the Machines API, so the emulator has the fields that it asks for at the root of a query. What is
// below them is answered in full, whatever was asked for: clients leave aside what they do not
// know.

// field is one at the root of an operation.
type field struct {
	alias, name string
	args        string // as they were written
}

// rootFields reads the fields of the first operation of a document.
func rootFields(doc string) ([]field, error) {
	wrong := ours("graphql: want one query or mutation of named fields, without fragments at its root")
	_, rest, found := strings.Cut(doc, "{")
	if !found {
		return nil, wrong
	}
	var fields []field
	for {
		rest = strings.TrimLeft(rest, " \t\r\n,")
		if strings.HasPrefix(rest, "}") {
			return fields, nil
		}
		var f field
		if f.name, rest = word(rest); f.name == "" || len(fields) == maxFields {
			return nil, wrong
		}
		f.alias = f.name
		if after, ok := strings.CutPrefix(rest, ":"); ok {
			if f.name, rest = word(strings.TrimLeft(after, " \t\r\n")); f.name == "" {
				return nil, wrong
			}
		}
		var ok bool
		if f.args, rest, ok = enclosed(rest, '(', ')'); !ok {
			return nil, wrong
		}
		if _, rest, ok = enclosed(rest, '{', '}'); !ok {
			return nil, wrong
		}
		fields = append(fields, f)
	}
}

const maxFields = 20

// word cuts a name off, and the white space behind it.
func word(s string) (name, rest string) {
	i := strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	if i < 0 {
		i = len(s)
	}
	return s[:i], strings.TrimLeft(s[i:], " \t\r\n")
}

// enclosed cuts off what is between two brackets, if s begins with one.
func enclosed(s string, open, end byte) (inner, rest string, ok bool) {
	if len(s) == 0 || s[0] != open {
		return "", s, true
	}
	depth, quoted := 0, false
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == open:
			depth++
		case c == end:
			if depth--; depth == 0 {
				return s[1:i], strings.TrimLeft(s[i+1:], " \t\r\n"), true
			}
		}
	}
	return "", "", false
}

// argument returns the value of an argument that is a variable or a string.
func (f *field) argument(name string, vars map[string]json.RawMessage) (value string) {
	for part := range strings.SplitSeq(f.args, ",") {
		k, v, _ := strings.Cut(part, ":")
		if v = strings.TrimSpace(v); strings.TrimSpace(k) != name {
			continue
		}
		raw := []byte(v)
		if variable, ok := strings.CutPrefix(v, "$"); ok {
			raw = vars[variable]
		}
		_ = json.Unmarshal(raw, &value) // what is no string names nothing
	}
	return value
}

// graphQL answers an operation. Its errors are in the body, as with Fly.
func graphQL(ctx context.Context, c *call) (answer, error) {
	var in struct {
		Query     string                     `json:"query"`
		Operation string                     `json:"operationName"`
		Variables map[string]json.RawMessage `json:"variables"`
	}
	if err := json.Unmarshal(c.body, &in); err != nil {
		return answer{}, fail(http.StatusBadRequest, "flytest: the body: %v", err)
	}
	fields, err := rootFields(in.Query)
	data := map[string]any{}
	for i := 0; i < len(fields) && err == nil; i++ {
		data[fields[i].alias], err = c.resolveField(ctx, &fields[i], in.Variables)
	}
	if err != nil {
		code, text := "UNPROCESSABLE", err.Error()
		var e *apiError
		if errors.As(err, &e) {
			if b, is := e.body.(errorBody); is {
				text = b.Error
			}
		}
		if strings.HasPrefix(text, "Could not find") {
			code = "NOT_FOUND"
		}
		return ok(map[string]any{"data": nil, "errors": []any{map[string]any{"message": text, "extensions": map[string]string{"code": code}}}})
	}
	return ok(map[string]any{"data": data})
}

// resolveField returns the value of a field at the root.
func (c *call) resolveField(ctx context.Context, f *field, vars map[string]json.RawMessage) (any, error) {
	switch f.name {
	case "app":
		return c.appField(ctx, f.argument("name", vars), vars)
	case "apps":
		return c.appsField(f.argument("organizationId", vars)), nil
	case "viewer":
		return map[string]any{"__typename": "User", "id": "flytest", "email": "flytest@example.com", "name": "flytest"}, nil
	case "personalOrganization":
		return orgField(personal), nil
	case "organizations":
		return map[string]any{"nodes": c.orgs()}, nil
	case "organization":
		slug := f.argument("slug", vars)
		if i := slices.IndexFunc(c.orgs(), func(o map[string]any) bool { return o["slug"] == slug }); i < 0 {
			return nil, fmt.Errorf("Could not find Organization %q", slug)
		}
		return orgField(slug), nil
	case "platform":
		return map[string]any{"requestRegion": c.s.cfg.Regions[0], "regions": c.regionFields()}, nil
	case "nearestRegion":
		return c.regionFields()[0], nil
	case "createApp":
		return c.createAppField(ctx, vars)
	case "deleteApp":
		a, err := c.named(f.argument("appId", vars))
		if err != nil {
			return nil, err
		}
		c.app = a
		if _, err := under(deleteApp)(ctx, c); err != nil {
			return nil, err
		}
		return map[string]any{"organization": orgField(a.Org)}, nil
	}
	return nil, ours("graphql: the emulator has no field %.60q", f.name)
}

func orgField(slug string) map[string]any {
	return map[string]any{
		"id": slug, "internalNumericId": fmt.Sprint(numeric("org " + slug)), "slug": slug, "rawSlug": slug, "name": slug, "type": "SHARED", "paidPlan": true, "billable": true, "viewerRole": "admin",
	}
}

// orgs returns the organizations of the apps that the token may see, and that of people.
func (c *call) orgs() []map[string]any {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	slugs := []string{personal}
	for _, a := range c.s.apps {
		if c.tok.app == "" || c.tok.app == a.Name {
			slugs = append(slugs, a.Org)
		}
	}
	slices.Sort(slugs)
	var found []map[string]any
	for _, s := range slices.Compact(slugs) {
		found = append(found, orgField(s))
	}
	return found
}

func (c *call) regionFields() (found []map[string]any) {
	for _, r := range c.s.cfg.Regions {
		found = append(found, map[string]any{"code": r, "name": r, "gatewayAvailable": false, "requiresPaidPlan": false, "deprecated": false})
	}
	return found
}

// named returns an app that the token may see.
func (c *call) named(name string) (*app, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	a := c.s.apps[name]
	if a == nil || c.tok.app != "" && c.tok.app != name {
		return nil, fmt.Errorf("Could not find App %q", name)
	}
	return a, nil
}

// fields is an app as GraphQL has it. The caller holds Server.mu.
func (a *app) fields() map[string]any {
	v := a.view()
	host := a.Name + ".fly.dev"
	return map[string]any{
		"id": a.Name, "internalNumericId": v.NumericID, "name": a.Name, "hostname": host, "appUrl": "https://" + host, "cnameTarget": host,
		"deployed": v.MachineCount > 0, "network": v.Network, "status": v.Status, "platformVersion": "machines", "organization": orgField(a.Org),
		"ipAddresses": map[string]any{"nodes": []any{}}, "role": nil, "currentRelease": nil,
	}
}

// appField returns an app, with what the engine knows of the image that the client asks for.
func (c *call) appField(ctx context.Context, name string, vars map[string]json.RawMessage) (any, error) {
	a, err := c.named(name)
	if err != nil {
		return nil, err
	}
	c.s.mu.Lock()
	fields := a.fields()
	c.s.mu.Unlock()
	var ref string
	if json.Unmarshal(vars["imageRef"], &ref) == nil && ref != "" {
		info, err := c.s.findImage(ctx, ref, c.s.cfg.Pull)
		if err != nil {
			return nil, fmt.Errorf("Could not find image %q: %w", ref, err)
		}
		fields["image"] = map[string]any{"id": info.id, "digest": info.digest, "ref": ref, "compressedSize": fmt.Sprint(info.size)}
	}
	return fields, nil
}

func (c *call) appsField(org string) any {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	nodes := []map[string]any{}
	for _, a := range c.s.apps {
		if (org == "" || org == a.Org) && (c.tok.app == "" || c.tok.app == a.Name) {
			nodes = append(nodes, a.fields())
		}
	}
	slices.SortFunc(nodes, func(a, b map[string]any) int { return strings.Compare(a["name"].(string), b["name"].(string)) })
	return map[string]any{"nodes": nodes, "pageInfo": map[string]any{"hasNextPage": false, "endCursor": ""}}
}

func (c *call) createAppField(ctx context.Context, vars map[string]json.RawMessage) (any, error) {
	var in struct {
		Name           string `json:"name"`
		OrganizationID string `json:"organizationId"`
		Network        string `json:"network"`
	}
	if err := json.Unmarshal(vars["input"], &in); err != nil {
		return nil, ours("graphql: input: %v", err)
	}
	if _, err := createApp(ctx, c, &appInput{Name: in.Name, OrgSlug: in.OrganizationID, Network: in.Network}); err != nil {
		return nil, err
	}
	return map[string]any{"app": func() any {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		return c.s.apps[in.Name].fields()
	}()}, nil
}
