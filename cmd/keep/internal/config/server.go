package config

// A Server says where the API and the pages of keep serve and keep dev are.
type Server struct {
	// Listen is the address, or "off" for none. If empty, 127.0.0.1:7433, or any
	// free port if another process has that one. An address that other machines
	// can reach needs TLSCert and TLSKey.
	Listen string `toml:"listen"`

	// URL is how browsers come here, if that is not Listen: behind a proxy, such
	// as "https://keep.example.com". If empty, it follows from Listen.
	URL string `toml:"url"`

	// Socket is where commands find the daemon, for its owner alone. If empty, the
	// name of the database's file with .sock; none for Postgres.
	Socket string `toml:"socket"`

	// MetricsListen is an address with /metrics, /healthz and /readyz alone, without a login,
	// such as "0.0.0.0:9464" for a scraper on another machine. If empty, there is none, and they
	// are at Listen, where other machines need a token.
	MetricsListen string `toml:"metrics_listen"`

	// Hosts are more names by which browsers may come.
	Hosts []string `toml:"hosts"`

	// TLSCert and TLSKey are the files of a certificate. If empty, plain HTTP.
	TLSCert string `toml:"tls_cert"`
	TLSKey  string `toml:"tls_key"`
}
