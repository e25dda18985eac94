package orbit

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	adminv1 "orbit.example/sdk/go/gen/orbit/admin/v1"
	schedulev1 "orbit.example/sdk/go/gen/orbit/schedule/v1"
)

// messageBytesMax is the largest message that a client takes: larger than any that the server sends.
const messageBytesMax = 64 << 20

// A Client talks to a server. It is safe for concurrent use; one for a process is enough.
//
// Calls are sent again on UNAVAILABLE, with pauses that grow and no sooner than the server asks, until the deadline of
// their context, or for 10 s if it has none. Each write carries a request id that is the same every time, so it happens
// once.
type Client struct {
	config    clientConfig
	endpoint  endpoint
	conn      *grpc.ClientConn
	admin     adminv1.AdminServiceClient
	schedules schedulev1.ScheduleServiceClient
}

// NewClient makes a client. It connects with its first call, so it fails only if the configuration is wrong.
func NewClient(options ...ClientOption) (*Client, error) {
	c := &Client{}
	for _, option := range options {
		option(&c.config)
	}
	if err := c.config.resolve(getenv); err != nil {
		return nil, err
	}
	preferTLS := c.config.tls != nil || c.config.tlsCA != "" || c.config.tlsCert != ""
	var err error
	if c.endpoint, err = parseAddress(c.config.address, preferTLS); err != nil {
		return nil, err
	}
	if c.config.apiKey != "" && !c.endpoint.secure && !c.endpoint.isLoopback() {
		return nil, fmt.Errorf("orbit: the API key would be sent to %s in clear text; use https", c.endpoint)
	}
	if c.conn, err = c.dial(); err != nil {
		return nil, err
	}
	c.admin = adminv1.NewAdminServiceClient(c.conn)
	c.schedules = schedulev1.NewScheduleServiceClient(c.conn)
	return c, nil
}

// Close closes the connection. Workers of the client have their own.
func (c *Client) Close() error { return c.conn.Close() }

// Address tells which server the client talks to, as http://HOST:PORT or https://HOST:PORT.
func (c *Client) Address() string { return c.endpoint.String() }

// Admin gives the generated client of the service for callers and operators, over this client's connection: for what has
// no method here. Its errors are gRPC's; [ErrorFrom] translates them.
func (c *Client) Admin() adminv1.AdminServiceClient { return c.admin }

// dial opens a connection of its own.
func (c *Client) dial() (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if c.endpoint.secure {
		config, err := c.config.tlsConfig()
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		// Names are looked up for addresses, not for settings.
		grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("orbit-go/" + Version),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytesMax), grpc.MaxCallSendMsgSize(messageBytesMax)),
		// The server's pauses and this SDK's own decide when a call is tried again; the connection must not lag behind.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		// A path that broke without a word is noticed while a call waits. Not sooner than every minute: proxies end
		// connections that ask more often.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Minute, Timeout: 10 * time.Second}),
		// Frames of a busy worker fill the default windows.
		grpc.WithInitialWindowSize(1 << 20),
		grpc.WithInitialConnWindowSize(1 << 20),
	}
	if c.config.apiKey != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer{key: c.config.apiKey, secure: c.endpoint.secure}))
	}
	conn, err := grpc.NewClient(c.endpoint.target, append(options, c.config.dialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("orbit: %w", err)
	}
	return conn, nil
}

// bearer puts the API key into each call.
type bearer struct {
	key    string
	secure bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.key}, nil
}

// RequireTransportSecurity makes gRPC itself refuse what [NewClient] refuses, but for loopback.
func (b bearer) RequireTransportSecurity() bool { return b.secure }

// ServerInfo tells what the server is: its version, limits and capabilities. It also is a way to see whether one is there.
func (c *Client) ServerInfo(ctx context.Context) (*adminv1.GetServerInfoResponse, error) {
	return invoke(ctx, c, &adminv1.GetServerInfoRequest{}, c.admin.GetServerInfo)
}

// logger is where the client writes.
func (c *Client) logger() *slog.Logger { return c.config.logger }
