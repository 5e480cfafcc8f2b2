//go:build unix

package postgres_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// A server that demands TLS is reached with a certificate that the URL trusts, and
// neither in the clear nor with one that it does not trust.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := pgtest.StartDurable(t)
	theirs, key := certificate(t)
	others, _ := certificate(t)
	give(t, server.Data, "server.crt", theirs)
	give(t, server.Data, "server.key", key)
	give(t, server.Data, "pg_hba.conf", []byte("hostssl all all 127.0.0.1/32 trust\n"))
	conn := connect(t, server.URL("postgres"))
	for _, query := range []string{"ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()"} {
		if _, err := conn.Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	give(t, dir, "theirs.pem", theirs)
	give(t, dir, "others.pem", others)
	open := func(ctx context.Context, options string) error {
		url, _, _ := strings.Cut(server.URL("postgres"), "?")
		db := postgres.New(url+"?"+options, postgres.Config{Host: true})
		defer db.Close()
		return db.Open(ctx)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	clear := open(ctx, "sslmode=disable")
	for clear == nil { // the server reads its configuration when it gets to it
		clear = open(ctx, "sslmode=disable")
	}
	if !strings.Contains(clear.Error(), "no encryption") {
		t.Errorf("in the clear: %v", clear)
	}
	if err := open(ctx, "sslmode=verify-full&sslrootcert="+filepath.Join(dir, "theirs.pem")); err != nil {
		t.Errorf("with its certificate: %v", err)
	}
	if err := open(ctx, "sslmode=verify-full&sslrootcert="+filepath.Join(dir, "others.pem")); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with another certificate: %v", err)
	}
}

// certificate returns a new certificate of 127.0.0.1, signed by itself, and its key.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "127.0.0.1"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	der8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der8})
}

// give writes a file that only the owner of its directory can read.
func give(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
}
