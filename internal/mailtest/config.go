package mailtest

import (
	"fmt"
	"strings"
)

// The servers know every user; the domain says whether sent mails are filed.

const dovecotConf = `
base_dir = @DIR@/run
state_dir = @DIR@/state
log_path = @DIR@/dovecot.log
protocols = imap
listen = 127.0.0.1
ssl = yes
ssl_cert = <@DIR@/cert.pem
ssl_key = <@DIR@/key.pem
disable_plaintext_auth = no
mail_location = maildir:@DIR@/mail/%u/Maildir
first_valid_uid = 1
first_valid_gid = 1
mail_max_userip_connections = 500
mailbox_list_index = no
default_process_limit = 300
default_client_limit = 2000
auth_mechanisms = plain xoauth2
auth_failure_delay = 0
passdb {
  driver = oauth2
  mechanisms = xoauth2
  args = @DIR@/oauth2.conf
}
passdb {
  driver = static
  mechanisms = plain
  args = password=@PASSWORD@
}
userdb {
  driver = static
  args = uid=@UID@ gid=@GID@ home=@DIR@/mail/%u allow_all_users=yes
}
namespace inbox {
  inbox = yes
  mailbox Sent {
    auto = create
    special_use = \Sent
  }
  mailbox Drafts {
    auto = create
    special_use = \Drafts
  }
  mailbox Archive {
    auto = create
    special_use = \Archive
  }
}
service imap-login {
  service_count = 0
  process_min_avail = 2
  inet_listener imap {
    port = @IMAP@
  }
  inet_listener imaps {
    port = @IMAPS@
    ssl = yes
  }
}
service anvil {
  unix_listener anvil-auth-penalty {
    mode = 0
  }
}
service imap {
  service_count = 100
}
service auth {
  unix_listener auth-postfix {
    mode = 0666
  }
}
`

// oauth2Conf has Dovecot ask whose an access token is (RFC 7662).
const oauth2Conf = `
introspection_mode = post
introspection_url = @ISSUER@/introspect
username_attribute = email
active_attribute = active
active_value = true
`

const mainCF = `
compatibility_level = 3.6
queue_directory = @DIR@/queue
data_directory = @DIR@/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
maillog_file = @DIR@/postfix.log
maillog_file_prefixes = /
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = localhost
mydestination =
mynetworks_style = host
alias_maps =
local_recipient_maps =
biff = no
virtual_mailbox_domains = @DOMAINS@
virtual_mailbox_base = @DIR@/mail
virtual_mailbox_maps = texthash:@DIR@/postfix/boxes
virtual_uid_maps = static:@UID@
virtual_gid_maps = static:@GID@
virtual_minimum_uid = 1
sender_bcc_maps = regexp:@DIR@/postfix/bcc
smtpd_tls_cert_file = @DIR@/cert.pem
smtpd_tls_key_file = @DIR@/key.pem
smtpd_tls_security_level = may
smtpd_sasl_auth_enable = yes
smtpd_sasl_type = dovecot
smtpd_sasl_path = @DIR@/run/auth-postfix
smtpd_sasl_security_options = noanonymous
smtpd_recipient_restrictions = check_recipient_access regexp:@DIR@/postfix/access, permit_sasl_authenticated, reject
smtpd_relay_restrictions = permit_sasl_authenticated, reject
smtpd_error_sleep_time = 0
in_flow_delay = 0
smtpd_peername_lookup = no
service_throttle_time = 1s
smtpd_client_connection_count_limit = 0
smtpd_client_connection_rate_limit = 0
message_size_limit = 2000000
`

const masterCF = `
127.0.0.1:@SMTP@  inet n - n - 200 smtpd
127.0.0.1:@SMTPS@ inet n - n - 200 smtpd -o smtpd_tls_wrappermode=yes
cleanup   unix  n - n - 0 cleanup
qmgr      unix  n - n 300 1 qmgr
tlsmgr    unix  - - n 1000? 1 tlsmgr
rewrite   unix  - - n - - trivial-rewrite
bounce    unix  - - n - 0 bounce
defer     unix  - - n - 0 bounce
trace     unix  - - n - 0 bounce
verify    unix  - - n - 1 verify
flush     unix  n - n 1000? 0 flush
proxymap  unix  - - n - - proxymap
proxywrite unix - - n - 1 proxymap
smtp      unix  - - n - - smtp
relay     unix  - - n - - smtp
showq     unix  n - n - - showq
error     unix  - - n - - error
retry     unix  - - n - - error
discard   unix  - - n - - discard
local     unix  - n n - - local
virtual   unix  - n n - 20 virtual
lmtp      unix  - - n - - lmtp
anvil     unix  - - n - 1 anvil
scache    unix  - - n - 1 scache
postlog   unix-dgram n - n - 1 postlogd
`

// boxes says where a mail to each user goes.
func boxes() string {
	var out strings.Builder
	for n := 1; n <= maxUsers; n++ {
		for _, domain := range []string{Filed, Unfiled} {
			fmt.Fprintf(&out, "u%[1]d@%[2]s u%[1]d@%[2]s/Maildir/\nsent-u%[1]d@%[2]s u%[1]d@%[2]s/Maildir/.Sent/\n", n, domain)
		}
	}
	return out.String()
}

// maxUsers is how many users there are.
const maxUsers = 2000

// bcc files what is sent.
const bcc = `
/^(u[0-9]+@@FILED@)$/  sent-$1
`

// access refuses for a while.
const access = `
/^busy@/  451 4.7.1 come back later
`
