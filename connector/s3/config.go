package s3

import (
	"cmp"
	"encoding/json"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/once"
	"github.com/keep-run/keep/internal/redact"
)

// Kind is what configuration calls this connector.
const Kind = "s3"

// A Config is one connection of keep.toml.
type Config struct {
	Connector string `toml:"connector"` // Kind, or empty

	// BaseURL is https://host. Empty: Amazon's address of the region.
	BaseURL string `toml:"base_url"`
	Bucket  string `toml:"bucket"`
	Region  string `toml:"region"` // empty: us-east-1

	AccessKey    string `toml:"access_key"`    // of the credentials
	SecretKey    string `toml:"secret_key"`    // of the credentials
	SessionToken string `toml:"session_token"` // of credentials that end

	// PathStyle puts the bucket into the path instead of the host. Nil: it does with
	// BaseURL.
	PathStyle *bool `toml:"path_style"`

	// SettleAfter is how long after its call a change may lag. Nil: not at all, since
	// S3 is consistent.
	SettleAfter *connector.Duration `toml:"settle_after"`

	// Complete says that nobody else deletes, moves or restores objects, and no rule of the
	// bucket does: an object that is not there was then never put.
	Complete bool `toml:"complete"`

	// Timeout ends a call. Zero: connector.DefaultTimeout.
	Timeout connector.Duration `toml:"timeout"`
}

var bucketName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,62}$`) })

// New returns the connection of that name. It makes no call.
func New(name string, cfg Config) (*connector.Connection, error) {
	c := connector.NewChecker(name)
	c.Kind(cfg.Connector, Kind)
	if !bucketName().MatchString(cfg.Bucket) {
		c.Addf("bucket", "%q is not the name of a bucket", cfg.Bucket)
	}
	region := cmp.Or(cfg.Region, "us-east-1")
	for _, k := range []struct{ key, value string }{{"access_key", cfg.AccessKey}, {"secret_key", cfg.SecretKey}} {
		if k.value == "" {
			c.Addf(k.key, `is required: %s = "${secret:name}"`, k.key)
		}
	}
	base := parseBase(c, cfg, region)
	if cfg.Timeout < 0 {
		c.Addf("timeout", "must not be negative")
	}
	if cfg.SettleAfter != nil && *cfg.SettleAfter < 0 {
		c.Addf("settle_after", "must not be negative")
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	s := &service{
		name: name, base: base, bucket: cfg.Bucket, region: region, hide: redact.New(cfg.SecretKey, cfg.AccessKey, cfg.SessionToken),
		credentials: aws.Credentials{AccessKeyID: cfg.AccessKey, SecretAccessKey: cfg.SecretKey, SessionToken: cfg.SessionToken},
		signer:      v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }),
		reads:       once.NewTransport(true), changes: once.NewTransport(false),
		timeout: time.Duration(cfg.Timeout), complete: cfg.Complete,
	}
	if cfg.SettleAfter != nil {
		s.settle = time.Duration(*cfg.SettleAfter)
	}
	s.pinned, _ = json.Marshal(map[string]string{"endpoint": base.String(), "bucket": cfg.Bucket, "region": region}) // strings can be written
	closer := func() error {
		s.reads.CloseIdleConnections()
		return nil
	}
	return &connector.Connection{Name: name, Connector: Kind, Tools: s.tools(), Close: closer}, nil
}

// parseBase returns the URL of the bucket, with a slash at its end.
func parseBase(c *connector.Checker, cfg Config, region string) *url.URL {
	inPath := cfg.BaseURL != "" || strings.Contains(cfg.Bucket, ".") // no certificate covers a dotted bucket
	if cfg.PathStyle != nil {
		inPath = *cfg.PathStyle
	}
	u, err := url.Parse(cmp.Or(cfg.BaseURL, "https://s3."+region+".amazonaws.com"))
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.User != nil:
		c.Addf("base_url", `must be "https://host", without a bucket`)
		return &url.URL{}
	case u.Scheme == "http" && !loopback(u.Hostname()):
		c.Addf("base_url", "must begin with https://: what is put and read would be sent in plain text")
	}
	u.Path = strings.TrimRight(u.Path, "/") + "/"
	if inPath {
		u.Path += cfg.Bucket + "/"
	} else {
		u.Host = cfg.Bucket + "." + u.Host
	}
	return u
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
