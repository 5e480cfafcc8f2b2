package compattest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/store/memory"
)

// routers returns an application with POST /orders/{id}, guarded, in each router.
// It answers 201 with the id, the body and the number of the run.
func routers(t *testing.T, runs *atomic.Int64) map[string]http.Handler {
	t.Helper()
	guard := func() *idempotency.Guard {
		g, err := idempotency.New(new(memory.Keys), idempotency.Config{Rules: []idempotency.Rule{{Path: "/orders/{id}"}}})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	text := func(id string, r *http.Request) string {
		body, _ := io.ReadAll(r.Body)
		return fmt.Sprintf("%s %s %d", id, body, runs.Add(1))
	}

	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/orders/1")
		w.WriteHeader(201)
		_, _ = io.WriteString(w, text(r.PathValue("id"), r))
	})

	c := chi.NewRouter()
	c.Use(middleware.RequestID, middleware.RealIP, guard().Handler, middleware.Recoverer, middleware.Compress(5))
	c.Post("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/orders/1")
		w.WriteHeader(201)
		_, _ = io.WriteString(w, text(chi.URLParam(r, "id"), r))
	})

	e := echo.New()
	e.Use(echomw.RequestID(), echo.WrapMiddleware(guard().Handler), echomw.Recover())
	e.POST("/orders/:id", func(c echo.Context) error {
		c.Response().Header().Set("Location", "/orders/1")
		return c.String(201, text(c.Param("id"), c.Request()))
	})

	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.Use(gin.Recovery())
	g.POST("/orders/:id", func(c *gin.Context) {
		c.Header("Location", "/orders/1")
		c.String(201, text(c.Param("id"), c.Request))
	})
	return map[string]http.Handler{
		"ServeMux": guard().Handler(mux), "chi": c, "echo": e, "gin": guard().Handler(g),
	}
}

func TestRouters(t *testing.T) {
	var runs atomic.Int64
	for name, h := range routers(t, &runs) {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(h)
			defer s.Close()
			runs.Store(0)
			for i := range 3 {
				status, body, header := post(t, s.URL+"/orders/7", "k", "body")
				if status != 201 || body != "7 body 1" || header.Get("Location") != "/orders/1" ||
					(header.Get("Idempotent-Replayed") == "true") != (i > 0) {
					t.Errorf("answer %d = %d %q %v", i, status, body, header)
				}
			}
			if status, body, _ := post(t, s.URL+"/orders/7", "k", "another"); status != 422 || !strings.Contains(body, "key-reused") {
				t.Errorf("another body: %d %q", status, body)
			}
			if _, body, _ := post(t, s.URL+"/orders/8", "", "body"); body != "8 body 2" {
				t.Errorf("without a key: %q", body)
			}
		})
	}
}

func post(t testing.TB, url, key, body string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}
