package modal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/execbroker/execbroker/executor/driver"
)

// Server is the address of Modal.
const Server = "https://api.modal.com:443"

// channelIdle is after how many seconds the SDK lets go of a connection to a Sandbox that nobody
// uses.
const channelIdle = "30"

// setting is something that the SDK takes from its own environment: a variable or a key of a
// profile in its file. Where it matters what is set, the configuration has to say the same.
type setting struct {
	variable, key string
	is            func(value string) bool // whether the configuration says the same
	instead       string                  // what to do
}

// settings are all that the SDK reads.
func (c *Config) settings() []setting {
	names := func(s driver.Secret) func(string) bool {
		return func(v string) bool {
			value, err := s.Value()
			return err == nil && v == value
		}
	}
	equal := func(want string) func(string) bool { return func(v string) bool { return v == want } }
	never := func(string) bool { return false }
	return []setting{
		{"MODAL_SERVER_URL", "server_url", isServer, "the token would go there: unset it; only " + Server + " and a stand-in on loopback are taken"},
		{"MODAL_TOKEN_ID", "token_id", names(c.TokenID), "make it the same as token_id, or unset it"},
		{"MODAL_TOKEN_SECRET", "token_secret", names(c.TokenSecret), "make it the same as token_secret, or unset it"},
		{"MODAL_OAUTH_REFRESH_TOKEN", "oauth_refresh_token", never, "unset it: this backend has a token"},
		{"MODAL_OAUTH_CLIENT_ID", "oauth_client_id", never, "unset it: this backend has a token"},
		{"MODAL_OAUTH_CLIENT_SECRET", "oauth_client_secret", never, "unset it: this backend has a token"},
		{"MODAL_OAUTH_JWT_KEY", "oauth_jwt_key", never, "unset it: this backend has a token"},
		{"MODAL_ENVIRONMENT", "environment", equal(c.Environment), "set environment in the configuration to the same"},
		{"MODAL_IMAGE_BUILDER_VERSION", "image_builder_version", never, "unset it: the workspace decides"},
		{"MODAL_LOGLEVEL", "loglevel", never, "unset it: the program's own logger decides"},
		{"MODAL_MAX_THROTTLE_WAIT", "", equal(strconv.Itoa(int(c.maxThrottleWait().Seconds()))), "set max_throttle_wait in the configuration to the same"},
		{"MODAL_SANDBOX_CHANNEL_IDLE_TIMEOUT", "", equal(channelIdle), "unset it"},
		{"MODAL_SANDBOX_V2", "sandbox_v2", c.isGeneration, "set generation in the configuration to the same"},
	}
}

func isServer(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.String() == Server || u.String() == strings.TrimSuffix(Server, ":443") || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// isGeneration reports whether the SDK understands a value as the configured generation.
func (c *Config) isGeneration(value string) bool {
	v1 := slices.Contains([]string{"0", "false"}, strings.ToLower(value))
	return v1 == (c.Generation == V1)
}

// maxFile bounds the file of the SDK.
const maxFile = 1 << 20

// checkEnvironment refuses what the SDK would take from its own environment, and the configuration
// does not set to the same value: a Sandbox would be made with another account, elsewhere, or in
// another way than the configuration says. It reads what the SDK reads, and changes nothing.
func (c *Config) checkEnvironment() error {
	var errs []error
	all := c.settings()
	generation := false
	for _, s := range all {
		v := os.Getenv(s.variable)
		if v == "" {
			continue
		}
		if !s.is(v) {
			errs = append(errs, fmt.Errorf("variable %s: the SDK of Modal would use it, and the configuration does not say the same; %s", s.variable, s.instead))
		}
		generation = generation || s.key == "sandbox_v2"
	}
	file, profiles, err := profiles()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		p := profiles[name]
		values := p.values()
		for _, s := range all {
			v := values[s.key]
			if v == "" || os.Getenv(s.variable) != "" {
				continue // a variable comes before the file
			}
			if !s.is(v) {
				errs = append(errs, fmt.Errorf("%s: profile %s, key %s: the SDK of Modal would use it, and the configuration does not say the same; %s", file, name, s.key, s.instead))
			}
			generation = generation || s.key == "sandbox_v2"
		}
	}
	if c.Generation == V1 && !generation {
		errs = append(errs, errors.New("generation: v1 needs the variable MODAL_SANDBOX_V2 with the value 0: the SDK of Modal takes it from there only"))
	}
	return errors.Join(errs...)
}

// profile is a part of the SDK's file, with the fields of the SDK's own type. The decoder takes
// their keys in letters of any case, so a look-up by name would miss what the SDK finds.
type profile struct {
	ServerURL           string `toml:"server_url"`
	TokenID             string `toml:"token_id"`
	TokenSecret         string `toml:"token_secret"`
	OAuthRefreshToken   string `toml:"oauth_refresh_token"`
	OAuthClientID       string `toml:"oauth_client_id"`
	OAuthClientSecret   string `toml:"oauth_client_secret"`
	OAuthJWTKey         string `toml:"oauth_jwt_key"`
	Environment         string `toml:"environment"`
	ImageBuilderVersion string `toml:"image_builder_version"`
	LogLevel            string `toml:"loglevel"`
	SandboxV2           *bool  `toml:"sandbox_v2"`
	Active              bool   `toml:"active"`
}

// values are what the SDK takes from a profile, by key. Empty: the profile does not set it.
func (p *profile) values() map[string]string {
	v := map[string]string{
		"server_url": p.ServerURL, "token_id": p.TokenID, "token_secret": p.TokenSecret,
		"oauth_refresh_token": p.OAuthRefreshToken, "oauth_client_id": p.OAuthClientID,
		"oauth_client_secret": p.OAuthClientSecret, "oauth_jwt_key": p.OAuthJWTKey,
		"environment": p.Environment, "image_builder_version": p.ImageBuilderVersion, "loglevel": p.LogLevel,
	}
	if p.SandboxV2 != nil {
		v["sandbox_v2"] = strconv.FormatBool(*p.SandboxV2)
	}
	return v
}

// profiles returns the file that the SDK reads, and its profiles that the SDK may use: that of
// MODAL_PROFILE, or else the active ones, of which it takes any.
func profiles() (file string, found map[string]profile, err error) {
	if file = os.Getenv("MODAL_CONFIG_PATH"); file == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", nil, fmt.Errorf("the SDK of Modal reads a file in the home directory: %w; set HOME", err)
		}
		file = filepath.Join(home, ".modal.toml")
	}
	raw, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file, nil, nil
	case err != nil:
		return file, nil, fmt.Errorf("the file of the SDK of Modal: %w", err)
	case len(raw) > maxFile:
		return file, nil, fmt.Errorf("%s: more than %d bytes", file, maxFile)
	}
	if err := toml.Unmarshal(raw, &found); err != nil {
		return file, nil, fmt.Errorf("%s: not the file of the SDK of Modal: %s", file, lineOf(err))
	}
	chosen := os.Getenv("MODAL_PROFILE")
	maps.DeleteFunc(found, func(name string, p profile) bool { return name != chosen && (chosen != "" || !p.Active) })
	return file, found, nil
}

// lineOf returns where an error of TOML is, without the text of the file, which may hold a token.
func lineOf(err error) string {
	var d *toml.DecodeError
	if errors.As(err, &d) {
		row, _ := d.Position()
		return fmt.Sprintf("line %d", row)
	}
	return "it has to be profiles with keys"
}
