package postgres

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store/internal/stored"
)

// addTally counts rows that were made.
var addTally = over(`INSERT INTO tally AS t (workflow, noun, name, rows)
	SELECT workflow, noun, name, count(*) FROM %s
	 GROUP BY workflow, noun, name ORDER BY workflow, noun, name
	ON CONFLICT (workflow, noun, name) DO UPDATE SET rows = t.rows + excluded.rows`,
	`workflow text, noun text, name text`)

// tally counts a row that the commit makes.
func (t *tx) tally(noun, name string) {
	t.add(&addTally, text(string(t.workflow)), noun, text(name))
}

// everything is the cut of a list that is not cut.
var everything = cut{first: true, limit: 1 << 62}

// count counts in one statement: the usual state is what the others leave.
func count[F any, S ~string](ctx context.Context, db *DB, l lister[F, S], f F) (map[S]int, error) {
	type counted struct {
		state S
		n     int64
	}
	scan := func(row pgx.CollectableRow) (v counted, err error) {
		err = row.Scan(into(&v.state), &v.n)
		return v, err
	}
	c, err := within(ctx, db, l, f, everything)
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	q := new(query)
	if l.byWords(f) {
		counts, done, err := l.walked(ctx, db, q, f)
		if err != nil {
			return nil, fmt.Errorf("count: %w", err)
		}
		if done {
			return counts, nil
		}
	}
	sql, seen := l.counted(q, f, c)
	list, err := look(ctx, db, q, scan, sql, 0)
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	counts := make(map[S]int)
	for _, v := range list {
		switch {
		case seen:
			counts[v.state] += int(v.n)
		case v.state != "":
			counts[v.state] += int(v.n)
			counts[l.Usual] -= int(v.n)
		default:
			counts[l.Usual] += int(v.n)
		}
	}
	only := l.Only(f)
	maps.DeleteFunc(counts, func(s S, n int) bool { return n == 0 || only != "" && s != only })
	return counts, nil
}

// byWords reports whether the rows that a filter selects are found by their words, since no
// other index selects few enough of them.
func (l lister[F, S]) byWords(f F) bool {
	filter, only := l.Filter(f), l.Only(f)
	return len(search.Terms(filter.Text)) > 0 && !l.seldom(filter) && (only == "" || only == l.Usual)
}

// seldom reports whether a filter selects so few rows that each is looked at.
func (l lister[F, S]) seldom(f stored.Filter) bool { return f.Few || l.Usual == "" || f.Counted() }

// walked counts the rows that have the words of a filter by looking through the newest of the
// list, as long as these tell that search.MaxCount+1 of them are near: the index would go through
// all that have a word, however many. If they are not, q has the words to ask the index for.
func (l lister[F, S]) walked(ctx context.Context, db *DB, q *query, f F) (map[S]int, bool, error) {
	s := searcher{db: db, words: search.Terms(l.Filter(f).Text)}
	for rows, again := db.walk, true; ; again = false {
		counts, err := l.walk(ctx, &s, f, rows)
		if err != nil {
			return nil, false, err
		}
		found := 0
		for _, n := range counts {
			found += n
		}
		if found > search.MaxCount || s.walked < rows {
			return counts, true, nil
		}
		need := lastWalk + 1
		if found > 0 {
			need = search.MaxCount * s.walked / found * 5 / 4
		}
		if rows = need; !again || rows > lastWalk {
			if q.terms = s.terms(); len(q.terms.rare) == 0 {
				q.terms.rare, q.terms.often = s.words, nil
			}
			return nil, false, nil
		}
	}
}

// walk looks through the newest rows of the list without its words, and counts those that have
// them, up to search.MaxCount+1. It notes how many it saw, and how many had each word.
func (l lister[F, S]) walk(ctx context.Context, s *searcher, f F, rows int) (map[S]int, error) {
	q := new(query)
	inner := l.sql(q, f, cut{first: true, limit: rows}, l.Table+"."+l.State+", "+l.Table+".n, "+l.Table+".workflow, "+l.Table+".words")
	sql := `WITH walked AS MATERIALIZED (SELECT ` + l.State + ` AS state, words FROM (` + inner + `) AS list)
		SELECT state, count(*) FROM (SELECT state FROM walked WHERE words @@ ` + q.arg(tsquery(s.words)) + `::tsquery LIMIT ` + q.arg(search.MaxCount+1) + `) AS found GROUP BY 1
		UNION ALL SELECT '', count(*) FROM walked`
	for i, w := range s.words {
		sql += ` UNION ALL SELECT '` + strconv.Itoa(i) + `', count(*) FROM walked WHERE words @@ ` + q.arg(tsquery([]string{w})) + `::tsquery`
	}
	counts := make(map[S]int)
	s.hits = make(map[int]int)
	_, err := collect(ctx, s.db, func(row pgx.CollectableRow) (struct{}, error) {
		var what string
		var n int
		err := row.Scan(&what, &n)
		if i, isWord := strconv.Atoi(what); isWord == nil {
			s.hits[i] = n
		} else if what == "" {
			s.walked = n
		} else {
			counts[S(what)] = n
		}
		return struct{}{}, err
	}, sql, q.args...)
	return counts, err
}

// counted is the statement of count. seen reports whether it counts the rows that the filter
// selects; else it counts those in the unusual states, and all rows as those in no state.
func (l lister[F, S]) counted(q *query, f F, c cut) (sql string, seen bool) {
	filter := l.Filter(f)
	words := search.Terms(filter.Text)
	few := l.seldom(filter)
	if filter.Counted() {
		c.limit = search.MaxCount + 1
	}
	state, columns := l.Table+"."+l.State, l.Table+"."+l.State+", "+l.Table+".n, "+l.Table+".workflow"
	switch {
	case len(words) > 0 && !l.byWords(f): // go through these rows
		c.limit = everything.limit
		sql = l.sql(q, f, c, columns+", "+l.Table+".words")
		sql = `SELECT ` + l.State + ` FROM (` + sql + `) AS found WHERE words @@ ` + q.arg(tsquery(words)) + `::tsquery LIMIT ` + q.arg(search.MaxCount+1)
	case len(words) > 0: // by the index, in its own order
		q.any = true
		c.limit = search.MaxCount + 1
		sql = l.sql(q, f, c, state)
	case few:
		q.any = filter.Counted()
		sql = l.sql(q, f, c, columns)
	default:
		sql = l.unusualSQL(q, f)
		all := query{args: q.args}
		and(&all, "tally.workflow", l.Workflow(f))
		and(&all, "tally.name", l.Value(f, l.Name))
		sql += ` UNION ALL SELECT '', coalesce(sum(rows), 0)::bigint FROM tally` + all.conditions("tally.noun = '"+l.Table+"'")
		q.args = all.args
		return sql, false
	}
	return `SELECT ` + l.State + `, count(*) FROM (` + sql + `) AS found GROUP BY 1`, true
}

// unusualSQL counts the rows in all states but the usual one, by an index.
func (l lister[F, S]) unusualSQL(q *query, f F) string {
	if l.unusual != nil {
		return l.unusual(q, f)
	}
	and(q, "lease.workflow", l.Workflow(f))
	var others []string
	for _, s := range l.States {
		if s != l.Usual {
			others = append(others, "('"+string(s)+"')")
		}
	}
	return `SELECT s.status, sum(c.n)::bigint FROM (VALUES ` + strings.Join(others, ", ") + `) AS s (status), lease, LATERAL (
			SELECT count(*) AS n FROM ` + l.Table + ` t WHERE t.workflow = lease.workflow AND t.status = s.status) c` +
		q.conditions() + ` GROUP BY s.status`
}

// CountRuns counts the runs that a filter selects, by their status.
func (db *DB) CountRuns(ctx context.Context, f keep.RunFilter) (map[keep.RunStatus]int, error) {
	return count(ctx, db, runLists, f)
}

// CountMutations counts the records that a filter selects, by their state.
func (db *DB) CountMutations(ctx context.Context, f keep.MutationFilter) (map[keep.MutationState]int, error) {
	return count(ctx, db, mutationLists, f)
}

// CountInputs counts the inputs that a filter selects, by their status.
func (db *DB) CountInputs(ctx context.Context, f keep.InputFilter) (map[keep.InputStatus]int, error) {
	return count(ctx, db, inputLists, f)
}

// CountItems counts the items that a filter selects, by their status.
func (db *DB) CountItems(ctx context.Context, f keep.ItemFilter) (map[keep.ItemStatus]int, error) {
	return count(ctx, db, itemLists, f)
}

// CountEscalations counts the questions that a filter selects, by their kind.
func (db *DB) CountEscalations(ctx context.Context, f keep.EscalationFilter) (map[keep.EscalationKind]int, error) {
	return count(ctx, db, escalationLists, f)
}
