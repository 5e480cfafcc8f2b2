package oauth

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// more are networks that are reached from here and from nowhere else, beside those that package netip knows.
var more = []netip.Prefix{netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16")}

// isPublic reports whether an address is one of the internet.
func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	for _, p := range more {
		if p.Contains(ip) {
			return false
		}
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate()
}

// isLoopback reports whether a host is this machine, by its name alone.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Near reports whether an address is on this machine or in a private network, as it is written: what a name resolves
// to may be whatever its owner wants.
func Near(u *url.URL) bool {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return !isPublic(ip)
	}
	return !strings.Contains(host, ".") || slices.ContainsFunc([]string{".localhost", ".local", ".internal", ".lan", ".home.arpa"}, func(end string) bool {
		return strings.HasSuffix(host, end)
	})
}

// Guard makes connections to public addresses only, whatever a name resolves to at that moment, and to the
// proxy of the environment.
func Guard(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	if !isProxy(address) {
		d.Control = func(_, at string, _ syscall.RawConn) error {
			if to, err := netip.ParseAddrPort(at); err != nil || !isPublic(to.Addr()) {
				return fmt.Errorf("%s is an address of this machine or of a private network, and the server that names it is not there", at)
			}
			return nil
		}
	}
	return d.DialContext(ctx, network, address)
}

// isProxy reports whether an address is that of the proxy of the environment.
func isProxy(address string) bool {
	for _, scheme := range []string{"http", "https"} {
		via, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: scheme, Host: "keep.invalid"}})
		if err != nil || via == nil {
			continue
		}
		port := via.Port()
		port = cmp.Or(port, map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[via.Scheme])
		if address == net.JoinHostPort(via.Hostname(), port) {
			return true
		}
	}
	return false
}
