// Command go-client makes a table by iceberg-go ("URI write NAMESPACE"): it appends, adds and renames columns, deletes,
// overwrites, commits to two tables at once, and makes a view. "read" only reads, planned by the client and by the
// service. Both print each row of the table as a line, ordered by its id. LAMELLA_TOKEN is the key, if any.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	_ "github.com/apache/iceberg-go/io/gocloud/s3"
	"github.com/apache/iceberg-go/table"
	"github.com/apache/iceberg-go/view"
)

const name = "from_go"

func main() {
	if len(os.Args) != 4 {
		log.Fatal("expected URI write|read NAMESPACE")
	}
	var options []rest.Option
	if token := os.Getenv("LAMELLA_TOKEN"); token != "" {
		options = append(options, rest.WithOAuthToken(token))
	}
	ctx := context.Background()
	lake := must(rest.NewCatalog(ctx, "lake", os.Args[1], options...))
	if os.Args[2] == "write" {
		write(ctx, lake, os.Args[3])
	}
	show(ctx, lake, os.Args[3])
}

func write(ctx context.Context, lake *rest.Catalog, namespace string) {
	where := table.Identifier{namespace}
	if !must(lake.CheckNamespaceExists(ctx, where)) {
		check(lake.CreateNamespace(ctx, where, iceberg.Properties{"owner": "go"}))
		require(must(lake.LoadNamespaceProperties(ctx, where))["owner"] == "go", "the namespace's property")
	}
	schema := iceberg.NewSchema(0,
		iceberg.NestedField{ID: 1, Name: "id", Type: iceberg.PrimitiveTypes.Int64},
		iceberg.NestedField{ID: 2, Name: "text", Type: iceberg.PrimitiveTypes.String},
	)
	at := table.Identifier{namespace, name}
	made := must(lake.CreateTable(ctx, at, schema, catalog.WithProperties(iceberg.Properties{"format-version": "2"})))
	require(must(lake.CheckTableExists(ctx, at)), "the table")
	_, err := lake.CreateTable(ctx, at, schema)
	require(errors.Is(err, catalog.ErrTableAlreadyExists), fmt.Sprint("a second table of the name: ", err))
	var listed []string
	for each, err := range lake.ListTables(ctx, where) {
		check(err)
		listed = append(listed, strings.Join(each, "."))
	}
	require(slices.Contains(listed, namespace+"."+name), "the list of tables")

	made = must(made.AppendTable(ctx, rows(made, `[{"id": 1, "text": "one"}, {"id": 2}]`), 10, nil))
	made = must(made.AppendTable(ctx, rows(made, `[{"id": 3, "text": "three"}, {"id": 4, "text": "four"}]`), 10, nil))

	// A handle of before that: its commit is refused, loaded anew and repeated by the client.
	old := must(lake.LoadTable(ctx, at))
	change := made.NewTransaction()
	check(change.UpdateSchema(true, false).
		AddColumn([]string{"price"}, iceberg.PrimitiveTypes.Float64, "in euros", false, nil).
		RenameColumn([]string{"text"}, "name").Commit())
	check(change.SetProperties(iceberg.Properties{"comment": "made by go"}))
	made = must(change.Commit(ctx))
	must(old.AppendTable(ctx, rows(old, `[{"id": 5, "text": "five"}]`), 10, nil))
	check(made.Refresh(ctx))

	made = must(made.AppendTable(ctx, rows(made, `[{"id": 6, "name": "six", "price": 6.5}]`), 10, nil))
	made = must(made.Delete(ctx, iceberg.EqualTo(iceberg.Reference("id"), int64(3)), nil))
	made = must(made.OverwriteTable(ctx, rows(made, `[{"id": 4, "name": "vier", "price": 4}]`), 10, nil,
		table.WithOverwriteFilter(iceberg.EqualTo(iceberg.Reference("id"), int64(4)))))
	require(len(made.Metadata().Snapshots()) >= 6, "the snapshots")

	other := must(lake.CreateTable(ctx, table.Identifier{namespace, "other"}, schema))
	both := must(catalog.NewMultiTableTransaction(lake))
	first, second := made.NewTransaction(), other.NewTransaction()
	check(first.AppendTable(ctx, rows(made, `[{"id": 7, "name": "seven"}]`), 10, nil))
	check(second.AppendTable(ctx, rows(other, `[{"id": 7, "text": "sieben"}]`), 10, nil))
	check(both.AddTransaction(first))
	check(both.AddTransaction(second))
	check(both.Commit(ctx))
	must(lake.RenameTable(ctx, table.Identifier{namespace, "other"}, table.Identifier{namespace, "another"}))
	require(must(lake.LoadTable(ctx, table.Identifier{namespace, "another"})).CurrentSnapshot() != nil, "the other table")

	sql := must(view.NewVersion(1, 0, view.Representations{view.NewRepresentation("SELECT 1 AS id", "spark")}, where))
	seen := table.Identifier{namespace, "go_view"}
	must(lake.CreateView(ctx, seen, sql, schema))
	require(must(lake.LoadView(ctx, seen)).CurrentVersion().Representations[0].Sql == "SELECT 1 AS id", "the view")
	check(lake.DropView(ctx, seen))
}

// rows returns an Arrow table with the columns of a table, from JSON.
func rows(of *table.Table, text string) arrow.Table {
	schema := must(table.SchemaToArrowSchema(of.Schema(), nil, false, false))
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(text))
	check(err)
	return array.NewTableFromRecords(schema, []arrow.RecordBatch{batch})
}

func show(ctx context.Context, lake *rest.Catalog, namespace string) {
	made := must(lake.LoadTable(ctx, table.Identifier{namespace, name}))
	for _, filter := range []iceberg.BooleanExpression{
		iceberg.AlwaysTrue{},
		iceberg.GreaterThan(iceberg.Reference("id"), int64(4)),
		iceberg.IsNull(iceberg.Reference("price")),
	} {
		own := scanned(ctx, made.Scan(table.WithRowFilter(filter)))
		planned := scanned(ctx, made.Scan(table.WithRowFilter(filter), table.WithScanPlanningMode(table.ScanPlanningRemote)))
		require(slices.Equal(own, planned), fmt.Sprint("the service's plan: ", own, planned))
		if _, all := filter.(iceberg.AlwaysTrue); all {
			fmt.Println(strings.Join(own, "\n"))
		}
	}
}

// scanned returns the rows of a scan as texts, in order.
func scanned(ctx context.Context, scan *table.Scan) []string {
	_, batches, err := scan.ToArrowRecords(ctx)
	check(err)
	var found []string
	for batch, err := range batches {
		check(err)
		for row := range int(batch.NumRows()) {
			cells := make([]string, batch.NumCols())
			for at, column := range batch.Columns() {
				cells[at] = "null"
				if !column.IsNull(row) {
					cells[at] = column.ValueStr(row)
				}
			}
			found = append(found, strings.Join(cells, " "))
		}
	}
	slices.Sort(found)
	return found
}

func require(holds bool, what string) {
	if !holds {
		log.Fatalf("not as expected: %s", what)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}
