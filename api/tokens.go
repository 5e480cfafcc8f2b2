package api

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
)

// A Token is what is known of one; nobody has its secret but its owner.
type Token struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Role      access.Role `json:"role"`
	CreatedAt Time        `json:"created_at"`
	ExpiresAt *Time       `json:"expires_at" doc:"null: never"`
	UsedAt    *Time       `json:"used_at" doc:"null: never"`
}

// TokenOf returns the object of c.
func TokenOf(c keep.Credential) Token {
	return Token{ID: c.ID, Name: c.Name, Role: access.Role(c.Role), CreatedAt: Time(c.CreatedAt),
		ExpiresAt: timeOf(c.ExpiresAt), UsedAt: timeOf(c.UsedAt)}
}

// A NewToken is a token to be made. Who asks makes its secret, keep_ID_RANDOM, so
// that it is neither sent nor kept; not even as the answer of an Idempotency-Key.
type NewToken struct {
	ID   string      `json:"id" pattern:"^[a-z2-7]{10}$" doc:"the second part of the secret: keep_ID_RANDOM"`
	Hash string      `json:"hash" pattern:"^[0-9a-f]{64}$" doc:"SHA-256 of the third part, which must be random: 26 letters of base 32 or more"`
	Name string      `json:"name" minLength:"1" maxLength:"100" doc:"whose it is, as decisions record it"`
	Role access.Role `json:"role" enum:"agent,viewer,operator,author,admin"`
	Life int64       `json:"life,omitempty" minimum:"0" maximum:"3153600000" doc:"seconds until it ends; 0: never"`
}

// tokens registers what makes, lists and revokes tokens.
func (s *Server) tokens() {
	if s.cfg.Access == nil {
		return
	}
	as(s, access.Admin, http.MethodGet, "/tokens", "list-tokens", "Tokens of programs and people, newest first",
		func(ctx context.Context, _ *struct{}) (Page[Token], error) {
			all, err := s.cfg.Access.Credentials(ctx, keep.CredentialToken)
			return paged(each(all, TokenOf), "", err)
		})
	as(s, access.Admin, http.MethodPost, "/tokens", "add-token", "Make a token of a secret that you made",
		func(ctx context.Context, in *struct{ Body NewToken }) (Token, error) { return s.addToken(ctx, in.Body) })
	as(s, access.Admin, http.MethodPost, "/tokens/{token}/revoke", "revoke-token", "End a token, and the sessions that were made with it",
		func(ctx context.Context, in *struct {
			ID string `path:"token"`
		}) (Token, error) {
			c, err := s.cfg.Access.Credential(ctx, in.ID)
			if err == nil && c.Kind != keep.CredentialToken {
				err = &keep.NotFoundError{What: "token", ID: in.ID}
			}
			if err != nil {
				return Token{}, err
			}
			return TokenOf(c), access.End(ctx, s.cfg.Access, c, s.cfg.Clock())
		})
}

func (s *Server) addToken(ctx context.Context, in NewToken) (Token, error) {
	if len(in.Name) > access.MaxName { // the schema counts characters
		return Token{}, problemOf(http.StatusUnprocessableEntity, KindBadRequest, fmt.Sprintf("body.name: %d bytes of UTF-8: at most %d", len(in.Name), access.MaxName))
	}
	hash, err := hex.DecodeString(in.Hash)
	if err != nil {
		return Token{}, err // the pattern admits nothing else
	}
	c, err := access.Add(ctx, s.cfg.Access, keep.Credential{
		ID: in.ID, Hash: hash, Kind: keep.CredentialToken, Name: in.Name, Role: string(in.Role),
	}, s.cfg.Clock(), time.Duration(in.Life)*time.Second)
	if errors.Is(err, keep.ErrStale) {
		return Token{}, problemOf(http.StatusConflict, KindStale, "there is a token "+in.ID+" already")
	}
	return TokenOf(c), err
}

// namesOne reports whether a query has the name of one thing, which may not be there.
func namesOne[I any]() bool {
	return slices.ContainsFunc(reflect.VisibleFields(typeOf[I]()), func(f reflect.StructField) bool {
		return f.Tag.Get("query") != "" && f.Tag.Get("required") == "true"
	})
}

// as registers an operation for a role, whose answer is what f returns.
func as[I, O any](s *Server, need access.Role, method, path, id, summary string, f func(context.Context, *I) (O, error)) {
	op := s.operation(method, path, id, summary, need)
	if !strings.Contains(path, "{") && namesOne[I]() {
		op.Errors = append(op.Errors, http.StatusNotFound)
	}
	if isPaged[I]() {
		op.Errors, f = append(op.Errors, http.StatusBadRequest), marked(id, f)
	}
	register(s, op, func(ctx context.Context, in *I) (*out[O], error) {
		v, err := f(ctx, in)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		return &out[O]{v}, nil
	})
}
