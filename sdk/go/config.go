package orbit

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
)

// DefaultAddress is where a server is looked for if nothing says otherwise.
const DefaultAddress = "http://localhost:7070"

// defaultPort is the port of an address that names neither a port nor a scheme.
const defaultPort = "7070"

// defaultCallTimeout bounds a call, its retries included, whose context has no deadline.
const defaultCallTimeout = 10 * time.Second

// clientConfig is what options, environment and profile say about a client.
type clientConfig struct {
	address     string
	apiKey      string
	tlsCA       string
	tlsCert     string
	tlsKey      string
	tls         *tls.Config
	profile     string
	configFile  string
	callTimeout time.Duration
	logger      *slog.Logger
	dialOptions []grpc.DialOption
}

// A ClientOption changes one setting of a [Client]. What no option says comes from the environment, then from the
// profile, then from the defaults.
type ClientOption func(*clientConfig)

// WithAddress names the server: http://HOST:PORT, https://HOST:PORT or HOST:PORT. Environment: ORBIT_ADDRESS, or
// ORBIT_SERVER, which the command line reads. Default: [DefaultAddress]. HOST:PORT alone means http, or https if anything
// about TLS is configured.
func WithAddress(address string) ClientOption { return func(c *clientConfig) { c.address = address } }

// WithAPIKey gives the key that each call carries. Environment: ORBIT_API_KEY. Default: none. A key is never sent in
// clear text to another machine: [NewClient] refuses one together with an http address that is not loopback.
func WithAPIKey(key string) ClientOption { return func(c *clientConfig) { c.apiKey = key } }

// WithTLSCA names a PEM file with the certificates that sign the server's. Environment: ORBIT_TLS_CA. Default: those of
// the system.
func WithTLSCA(file string) ClientOption { return func(c *clientConfig) { c.tlsCA = file } }

// WithTLSCertificate names PEM files with the client's own certificate and key. Environment: ORBIT_TLS_CERT and
// ORBIT_TLS_KEY. Default: none.
func WithTLSCertificate(certFile, keyFile string) ClientOption {
	return func(c *clientConfig) { c.tlsCert, c.tlsKey = certFile, keyFile }
}

// WithTLSConfig uses a TLS configuration as it is, instead of files.
func WithTLSConfig(config *tls.Config) ClientOption { return func(c *clientConfig) { c.tls = config } }

// WithProfile chooses a profile of the configuration file, which then must exist. Environment: ORBIT_PROFILE. Default:
// the profile "default", if there is one.
func WithProfile(name string) ClientOption { return func(c *clientConfig) { c.profile = name } }

// WithConfigFile names the configuration file. Environment: ORBIT_CONFIG. Default: ~/.config/orbit/config.toml, if it
// exists. Its sections are [profile.NAME], with address, api_key, tls_ca, tls_cert and tls_key.
func WithConfigFile(file string) ClientOption { return func(c *clientConfig) { c.configFile = file } }

// WithCallTimeout bounds each call whose context has no deadline, its retries included. Default: 10 s.
func WithCallTimeout(timeout time.Duration) ClientOption {
	return func(c *clientConfig) { c.callTimeout = timeout }
}

// WithLogger sets where the SDK, and the loggers that it hands to handlers, write. Default: [slog.Default].
func WithLogger(logger *slog.Logger) ClientOption { return func(c *clientConfig) { c.logger = logger } }

// WithDialOptions adds options for the gRPC connection, such as interceptors or a dialer. They come last, so they win.
func WithDialOptions(options ...grpc.DialOption) ClientOption {
	return func(c *clientConfig) { c.dialOptions = append(c.dialOptions, options...) }
}

// resolve fills in what no option said, from the environment, the profile and the defaults.
func (c *clientConfig) resolve(getenv func(string) string) error {
	first := func(values ...string) string {
		for _, value := range values {
			if value != "" {
				return value
			}
		}
		return ""
	}
	profile, err := loadProfile(first(c.configFile, getenv("ORBIT_CONFIG")), first(c.profile, getenv("ORBIT_PROFILE")))
	if err != nil {
		return err
	}
	c.address = first(c.address, getenv("ORBIT_ADDRESS"), getenv("ORBIT_SERVER"), profile["address"], DefaultAddress)
	c.apiKey = first(c.apiKey, getenv("ORBIT_API_KEY"), profile["api_key"])
	c.tlsCA = first(c.tlsCA, getenv("ORBIT_TLS_CA"), profile["tls_ca"])
	c.tlsCert = first(c.tlsCert, getenv("ORBIT_TLS_CERT"), profile["tls_cert"])
	c.tlsKey = first(c.tlsKey, getenv("ORBIT_TLS_KEY"), profile["tls_key"])
	if c.callTimeout <= 0 {
		c.callTimeout = defaultCallTimeout
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	return nil
}

// An endpoint is an address that was understood.
type endpoint struct {
	// host and port, as a dialer takes them.
	target string
	host   string
	secure bool
}

func (e endpoint) String() string {
	if e.secure {
		return "https://" + e.target
	}
	return "http://" + e.target
}

// isLoopback tells whether what is sent to the endpoint stays on this machine.
func (e endpoint) isLoopback() bool {
	if strings.EqualFold(e.host, "localhost") || strings.HasSuffix(strings.ToLower(e.host), ".localhost") {
		return true
	}
	address, err := netip.ParseAddr(e.host)
	return err == nil && address.IsLoopback()
}

// parseAddress reads an address; preferTLS decides for one without a scheme.
func parseAddress(address string, preferTLS bool) (endpoint, error) {
	wrong := func(why string) (endpoint, error) {
		return endpoint{}, fmt.Errorf("orbit: %q is no address of a server: %s", address, why)
	}
	text, port := address, ""
	if !strings.Contains(address, "://") {
		scheme := "http"
		if preferTLS {
			scheme = "https"
		}
		text, port = scheme+"://"+address, defaultPort
	}
	parsed, err := url.Parse(text)
	if err != nil || parsed.Hostname() == "" {
		return wrong("want http://HOST:PORT, https://HOST:PORT or HOST:PORT")
	}
	if parsed.User != nil || strings.Trim(parsed.Path, "/") != "" || parsed.RawQuery != "" || parsed.Fragment != "" {
		return wrong("it has more than scheme, host and port")
	}
	var secure bool
	switch strings.ToLower(parsed.Scheme) {
	case "http":
	case "https":
		secure = true
	default:
		return wrong("its scheme is neither http nor https")
	}
	if given := parsed.Port(); given != "" {
		port = given
	} else if port == "" && secure {
		port = "443"
	} else if port == "" {
		port = "80"
	}
	host := parsed.Hostname()
	return endpoint{target: net.JoinHostPort(host, port), host: host, secure: secure}, nil
}

// tlsConfig makes the TLS configuration of a secure endpoint.
func (c *clientConfig) tlsConfig() (*tls.Config, error) {
	if c.tls != nil {
		return c.tls, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.tlsCA != "" {
		pem, err := os.ReadFile(c.tlsCA)
		if err != nil {
			return nil, fmt.Errorf("orbit: reading the certificates to trust: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("orbit: %s has no PEM certificate", c.tlsCA)
		}
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return nil, errors.New("orbit: a client certificate needs both its file and its key's")
	}
	if c.tlsCert != "" {
		certificate, err := tls.LoadX509KeyPair(c.tlsCert, c.tlsKey)
		if err != nil {
			return nil, fmt.Errorf("orbit: reading the client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}
