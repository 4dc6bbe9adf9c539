//! `rust-client URI write NAMESPACE` makes a table, appends rows, adds a column and appends more; `read` only reads.
//! Both print each row of the table as a line, ordered by its id.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::Array;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::SessionContext;
use iceberg::io::LocalFsStorageFactory;
use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};
use iceberg::transaction::{AddColumn, ApplyTransactionAction, Transaction};
use iceberg::{Catalog, CatalogBuilder, NamespaceIdent, TableCreation, TableIdent};
use iceberg_catalog_rest::{REST_CATALOG_PROP_URI, RestCatalog, RestCatalogBuilder};
use iceberg_datafusion::IcebergCatalogProvider;

type Done<T> = Result<T, Box<dyn std::error::Error>>;

const TABLE: &str = "from_rust";

#[tokio::main]
async fn main() -> Done<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [uri, what, namespace] = words.as_slice() else {
        return Err("expected URI write|read NAMESPACE".into());
    };
    let properties = HashMap::from([(REST_CATALOG_PROP_URI.to_string(), uri.clone())]);
    let catalog = RestCatalogBuilder::default()
        .with_storage_factory(Arc::new(LocalFsStorageFactory))
        .load("lake", properties)
        .await?;
    let catalog = Arc::new(catalog);
    if what == "write" {
        write(&catalog, namespace).await?;
    }
    print(&catalog, namespace).await
}

async fn write(catalog: &Arc<RestCatalog>, name: &str) -> Done<()> {
    let namespace = NamespaceIdent::new(name.to_string());
    catalog.create_namespace(&namespace, HashMap::from([("owner".to_string(), "rust".to_string())])).await?;
    assert_eq!(catalog.get_namespace(&namespace).await?.properties()["owner"], "rust");
    let schema = Schema::builder()
        .with_fields(vec![
            NestedField::optional(1, "id", Type::Primitive(PrimitiveType::Long)).into(),
            NestedField::optional(2, "name", Type::Primitive(PrimitiveType::String)).into(),
        ])
        .build()?;
    let creation = TableCreation::builder().name(TABLE.to_string()).schema(schema).build();
    let made = catalog.create_table(&namespace, creation).await?;
    let ident = TableIdent::new(namespace.clone(), TABLE.to_string());
    assert!(catalog.table_exists(&ident).await?);
    assert_eq!(catalog.list_tables(&namespace).await?, vec![ident.clone()]);

    sql(catalog, &format!("INSERT INTO lake.{name}.{TABLE} VALUES (1, 'one'), (2, NULL)")).await?;
    sql(catalog, &format!("INSERT INTO lake.{name}.{TABLE} VALUES (3, 'three')")).await?;
    let table = catalog.load_table(&ident).await?;
    assert_eq!(table.metadata().uuid(), made.metadata().uuid());
    assert_eq!(table.metadata().snapshots().count(), 2);

    let transaction = Transaction::new(&table);
    let column = AddColumn::optional("price", Type::Primitive(PrimitiveType::Double));
    let transaction = transaction.update_schema().add_column(column).apply(transaction)?;
    let transaction =
        transaction.update_table_properties().set("comment".to_string(), "made by rust".to_string()).apply(transaction)?;
    transaction.commit(catalog.as_ref()).await?;
    sql(catalog, &format!("INSERT INTO lake.{name}.{TABLE} VALUES (4, 'four', 4.5)")).await?;
    Ok(())
}

async fn print(catalog: &Arc<RestCatalog>, name: &str) -> Done<()> {
    let batches = sql(catalog, &format!("SELECT * FROM lake.{name}.{TABLE} ORDER BY id")).await?;
    for batch in batches {
        let options = FormatOptions::default().with_null("null");
        let columns: Result<Vec<_>, _> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column as &dyn Array, &options)).collect();
        let columns = columns?;
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|column| column.value(row).to_string()).collect();
            println!("{}", cells.join(" "));
        }
    }
    Ok(())
}

/// The rows of a statement; the catalog is read anew for each.
async fn sql(catalog: &Arc<RestCatalog>, statement: &str) -> Done<Vec<datafusion::arrow::record_batch::RecordBatch>> {
    let context = SessionContext::new();
    context.register_catalog("lake", Arc::new(IcebergCatalogProvider::try_new(catalog.clone()).await?));
    Ok(context.sql(statement).await?.collect().await?)
}
