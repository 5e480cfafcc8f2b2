package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A mishap is what goes wrong when an invoice is paid for the first time.
type mishap string

const (
	noMishap   mishap = ""
	LostAfter  mishap = "answer lost after the payment"
	LostBefore mishap = "connection lost before it"
	KilledIn   mishap = "killed before the answer"
	LostFax    mishap = "fax line lost before it"
)

// An invoice is one that the demo pays.
type invoice struct {
	ID     string `json:"id"`
	To     string `json:"to"`
	Amount int    `json:"amount"` // cents
	By     string `json:"by"`     // "transfer" or "fax"

	Mishap mishap
}

// Invoices are the ten invoices and their fates.
func Invoices() []invoice {
	all := make([]invoice, 10)
	for i, to := range []string{"Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jo"} {
		all[i] = invoice{ID: fmt.Sprintf("INV-%02d", i+1), To: to, Amount: 1000 * (i + 1), By: "transfer"}
	}
	all[2].Mishap, all[4].Mishap, all[5].Mishap = LostAfter, LostBefore, KilledIn
	all[9].Mishap, all[9].By = LostFax, "fax"
	return all
}

// A bank is a service that loses answers. Its book is the truth: what it really
// did, whatever anybody was told.
type bank struct {
	addr     string
	server   *http.Server
	ended    sync.WaitGroup
	invoices []invoice
	say      func(format string, args ...any) // tells of each thing that it does
	killNow  chan struct{}                    // gets a value when the caller is to be killed

	mu    sync.Mutex           // protects the fields below
	book  []string             // invoices in the order of their payments
	asked map[string]time.Time // first order of an invoice
}

// openBank starts a bank with these invoices at an address of this machine.
func openBank(addr string, invoices []invoice, say func(format string, args ...any)) (*bank, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("open the bank: %w", err)
	}
	b := &bank{addr: l.Addr().String(), invoices: invoices, say: say,
		killNow: make(chan struct{}, 1), asked: make(map[string]time.Time)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /invoices", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, b.invoices) })
	mux.HandleFunc("POST /payments", b.pay)
	mux.HandleFunc("POST /fax", b.pay)
	mux.HandleFunc("GET /payments/{invoice}", b.look)
	b.server = &http.Server{Handler: mux}
	b.ended.Go(func() {
		_ = b.server.Serve(l) // ErrServerClosed; after any other, nobody answers, and the demo fails
	})
	return b, nil
}

// Bank is the bank of the tutorial at an address of this machine, until ctx is done. It has four
// invoices: it pays one, loses the answer of the second, breaks the connection before the third, and
// loses the fax line before the fourth, which nobody can ask for.
func Bank(ctx context.Context, addr string, say func(format string, args ...any)) error {
	all := Invoices()
	four := []invoice{all[0], all[2], all[4], all[9]}
	for i := range four {
		four[i].ID = fmt.Sprintf("INV-%02d", i+1)
	}
	b, err := openBank(addr, four, say)
	if err != nil {
		return err
	}
	say("bank: at http://%s, until Ctrl-C", b.addr)
	<-ctx.Done()
	return b.close()
}

// close cuts every connection and waits for the bank to end.
func (b *bank) close() error {
	err := b.server.Close()
	b.ended.Wait()
	return err
}

// pay pays an invoice, again if it is told to again. The first time its mishap
// comes in between.
func (b *bank) pay(w http.ResponseWriter, r *http.Request) {
	var order struct{ Invoice string }
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		reply(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	i := slices.IndexFunc(b.invoices, func(in invoice) bool { return in.ID == order.Invoice })
	if i < 0 {
		reply(w, http.StatusNotFound, map[string]string{"error": "no such invoice"})
		return
	}
	switch m := b.first(order.Invoice, b.invoices[i].Mishap); m {
	case LostBefore, LostFax:
		b.say("bank: %s: the connection breaks before anything is done", order.Invoice)
		panic(http.ErrAbortHandler) // net/http cuts the connection
	case LostAfter:
		b.enter(order.Invoice)
		b.say("bank: %s: paid, and the connection breaks before the answer", order.Invoice)
		panic(http.ErrAbortHandler)
	case KilledIn:
		b.enter(order.Invoice)
		b.killNow <- struct{}{}
		<-r.Context().Done() // the caller is dead
	default:
		b.enter(order.Invoice)
		b.say("bank: %s: paid", order.Invoice)
		reply(w, http.StatusCreated, map[string]string{"payment": order.Invoice})
	}
}

// first returns m when an invoice is ordered for the first time, and no mishap
// after that.
func (b *bank) first(invoice string, m mishap) mishap {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.asked[invoice]; known {
		return noMishap
	}
	b.asked[invoice] = time.Now()
	return m
}

// enter writes a payment into the book: from here on it has happened.
func (b *bank) enter(invoice string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.book = append(b.book, invoice)
}

// paid returns how often an invoice was paid.
func (b *bank) paid(invoice string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, id := range b.book {
		if id == invoice {
			n++
		}
	}
	return n
}

// orderTime is how long after an order it can still arrive: timeout and
// settle_after of bank.pay in keep.toml.
const orderTime = 3 * time.Second

// look answers whether a payment is in the book.
func (b *bank) look(w http.ResponseWriter, r *http.Request) {
	invoice := r.PathValue("invoice")
	if b.paid(invoice) == 0 {
		b.mu.Lock()
		age := time.Since(b.asked[invoice]).Round(time.Second)
		b.mu.Unlock()
		why := "the order may still be under way"
		if age >= orderTime {
			why = "no order can be under way any more"
		}
		b.say("bank: %s: asked for, not there; %s", invoice, why)
		reply(w, http.StatusNotFound, map[string]string{"error": "no such payment"})
		return
	}
	b.say("bank: %s: asked for, it is there", invoice)
	reply(w, http.StatusOK, map[string]string{"payment": invoice})
}

// reply answers with JSON.
func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may be gone: that is the story
}
