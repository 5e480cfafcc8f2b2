package account

import "strings"

// maxName is how long a name can be, in bytes.
const maxName = 128

// IsName reports whether s can name an account or a secret: ASCII letters, digits, "_", and after the first of them "." and "-", but no
// "..". So it is the name of a file, too, and no message or id that holds it can be misread.
func IsName(s string) bool {
	const first = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
	return s != "" && len(s) <= maxName && strings.Trim(s[:1], first) == "" && strings.Trim(s, first+".-") == "" && !strings.Contains(s, "..")
}
