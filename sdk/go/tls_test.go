package orbit_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	orbit "orbit.example/sdk/go"
	adminv1 "orbit.example/sdk/go/gen/orbit/admin/v1"
)

// guarded is a server that wants TLS, a client certificate and a key.
type guarded struct {
	adminv1.UnimplementedAdminServiceServer
	tries int
}

func (g *guarded) GetServerInfo(ctx context.Context, _ *adminv1.GetServerInfoRequest) (*adminv1.GetServerInfoResponse, error) {
	g.tries++
	if g.tries == 1 {
		return nil, status.Error(codes.Unavailable, "not yet")
	}
	sent, _ := metadata.FromIncomingContext(ctx)
	if keys := sent.Get("authorization"); len(keys) != 1 || keys[0] != "Bearer orb_secret" {
		return nil, status.Error(codes.Unauthenticated, "who are you")
	}
	return &adminv1.GetServerInfoResponse{Version: "1.2.3"}, nil
}

// certificate makes a certificate that signs itself, for this machine, and writes both of its files.
func certificate(t *testing.T, folder, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	made, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(folder, name+".pem"), filepath.Join(folder, name+".key")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: made}, keyFile: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func TestAClientProvesWhoItIsAndTrustsOnlyWhomItShould(t *testing.T) {
	folder := t.TempDir()
	serverCert, serverKey := certificate(t, folder, "server")
	clientCert, clientKey := certificate(t, folder, "client")
	pair, err := tls.LoadX509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	text, err := os.ReadFile(clientCert)
	if err != nil || !trusted.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted})))
	adminv1.RegisterAdminServiceServer(server, &guarded{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	// No scheme: what is configured about TLS decides.
	client, err := orbit.NewClient(orbit.WithAddress(listener.Addr().String()), orbit.WithAPIKey("orb_secret"),
		orbit.WithTLSCA(serverCert), orbit.WithTLSCertificate(clientCert, clientKey))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if info, err := client.ServerInfo(t.Context()); err != nil || info.Version != "1.2.3" {
		t.Errorf("%v, %v", info, err)
	}

	stranger, err := orbit.NewClient(orbit.WithAddress("https://"+listener.Addr().String()), orbit.WithCallTimeout(500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if info, err := stranger.ServerInfo(t.Context()); err == nil {
		t.Errorf("a server that nobody signed is trusted: %v", info)
	}

	for name, options := range map[string][]orbit.ClientOption{
		"no such file":   {orbit.WithTLSCA(filepath.Join(folder, "nothing"))},
		"no certificate": {orbit.WithTLSCA(serverKey)},
		"half a pair":    {orbit.WithTLSCertificate(clientCert, "")},
		"a wrong pair":   {orbit.WithTLSCertificate(clientCert, serverKey)},
	} {
		if _, err := orbit.NewClient(append(options, orbit.WithAddress("https://127.0.0.1:1"))...); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}
