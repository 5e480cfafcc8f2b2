package mail

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-smtp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/native"
)

// maxQuoted bounds what a message quotes of a server.
const maxQuoted = 500

// failf returns a failure of a tool, without secrets and control characters.
func (a *account) failf(tool string, class keep.Class, code, format string, args ...any) *keep.Failure {
	f := keep.Failf(class, code, "%s", native.Message(a.clean(fmt.Sprintf(format, args...))))
	f.Tool = keep.ToolName(a.name + "." + tool)
	if u := a.used.Load(); u != nil && class == keep.ClassPermission {
		f.Account, f.Generation = a.connected, u.generation // with another generation it is tried again
	}
	return f
}

// fail classes an error of a step that is certain to have changed nothing.
func (a *account) fail(ctx context.Context, tool string, err error) *keep.Failure {
	if f, ok := errors.AsType[*keep.Failure](err); ok {
		f.Tool = cmp.Or(f.Tool, keep.ToolName(a.name+"."+tool))
		return f
	}
	class, code := classify(ctx, err)
	return a.failf(tool, class, code, "%v", err)
}

// classify says what an error means.
func classify(ctx context.Context, err error) (keep.Class, string) {
	_, login := errors.AsType[*loginError](err)
	if s, ok := errors.AsType[*smtp.SMTPError](err); ok {
		return classifySMTP(s, login)
	}
	if s, ok := errors.AsType[*imap.Error](err); ok {
		return classifyIMAP(s, login)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return keep.ClassPrecondition, "certificate"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return keep.ClassPrecondition, "certificate"
	}
	if _, ok := errors.AsType[*answerError](err); ok {
		return keep.ClassTransient, "bad-answer"
	}
	switch {
	case errOver(ctx, err):
		return keep.ClassTransient, "timeout"
	case strings.Contains(err.Error(), "doesn't support STARTTLS"):
		return keep.ClassPrecondition, "no-starttls"
	}
	return keep.ClassTransient, "connection"
}

// classifySMTP goes by the reply code.
func classifySMTP(e *smtp.SMTPError, login bool) (keep.Class, string) {
	code := fmt.Sprintf("smtp-%d", e.Code)
	switch {
	case e.Code/100 == 4:
		return keep.ClassTransient, code
	case login, e.Code == 535:
		return keep.ClassPermission, keep.CodeUnauthenticated
	case e.Code == 530, e.Code == 534, e.Code == 538:
		return keep.ClassPermission, code
	case e.Code/100 == 5:
		return keep.ClassLogic, code
	}
	return keep.ClassTransient, code
}

// classifyIMAP goes by the response code, which many servers leave out.
func classifyIMAP(e *imap.Error, login bool) (keep.Class, string) {
	code := "imap-" + strings.ToLower(string(e.Type))
	if e.Code != "" {
		code = "imap-" + strings.ToLower(string(e.Code))
	}
	switch e.Code {
	case imap.ResponseCodeUnavailable, imap.ResponseCodeInUse, imap.ResponseCodeServerBug, imap.ResponseCodeLimit:
		return keep.ClassTransient, code
	case imap.ResponseCodeAuthenticationFailed:
		return keep.ClassPermission, keep.CodeUnauthenticated
	case imap.ResponseCodeNoPerm, imap.ResponseCodeAuthorizationFailed, imap.ResponseCodeExpired, imap.ResponseCodePrivacyRequired, imap.ResponseCodeContactAdmin:
		return keep.ClassPermission, code
	case imap.ResponseCodeNonExistent, imap.ResponseCodeTryCreate, imap.ResponseCodeOverQuota:
		return keep.ClassPrecondition, code
	}
	switch {
	case login && e.Type == imap.StatusResponseTypeNo:
		return keep.ClassPermission, keep.CodeUnauthenticated
	case e.Type == imap.StatusResponseTypeBye:
		return keep.ClassTransient, code
	}
	return keep.ClassLogic, code
}

// said reports whether the server itself refused, so that err is no doubt.
func said(err error) bool {
	if e, ok := errors.AsType[*imap.Error](err); ok {
		return e.Type == imap.StatusResponseTypeNo || e.Type == imap.StatusResponseTypeBad
	}
	e, ok := errors.AsType[*smtp.SMTPError](err)
	return ok && e.Code != 421 && e.Code >= 400 && e.Code < 600
}
