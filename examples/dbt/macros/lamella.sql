{# What dbt-spark has to know of Lamella. Copy this file into the macros of a project. #}

{# `file_format: delta` lets dbt-spark use MERGE, CREATE OR REPLACE TABLE, snapshots and constraints. The files are
   Parquet, so the words USING DELTA would be refused. #}
{% macro spark__file_format_clause() %}{% endmacro %}

{# `clustered_by` without `buckets` is the cluster key. #}
{% macro spark__clustered_cols(label, required=false) %}
  {%- set columns = config.get('clustered_by') -%}
  {%- if columns is not none %}
    cluster by ({{ columns if columns is string else columns | join(', ') }})
  {%- endif %}
{% endmacro %}

{# SHOW TABLE EXTENDED leaves out views, and says no format. #}
{% macro spark__list_relations_without_caching(relation) %}
  {%- set tables = run_query('show tables in ' ~ relation.schema) -%}
  {%- set views = run_query('show views in ' ~ relation.schema).columns[1].values() | list -%}
  {% call statement('list_relations_without_caching', fetch_result=True) -%}
    select * from values
      {%- for row in tables.rows if not row[2] %}
      ('{{ row[0] }}', '{{ row[1] }}', false, '{{ 'Type: VIEW' if row[1] in views else 'Provider: delta' }}'),
      {%- endfor %}
      ('', '', true, '')
    as listed(namespace, name, is_temporary, information) where not is_temporary
  {%- endcall %}
  {% do return(load_result('list_relations_without_caching').table) %}
{% endmacro %}

{# The strategy `microbatch`: each batch replaces the rows of its time in one commit. dbt-spark's own needs partitions. #}
{% macro dbt_spark_get_incremental_sql(strategy, source, target, existing, unique_key, incremental_predicates) %}
  {%- if strategy != 'microbatch' -%}
    {%- if strategy == 'append' -%}
      {{ get_insert_into_sql(source, target) }}
    {%- elif strategy == 'insert_overwrite' -%}
      {{ get_insert_overwrite_sql(source, target, existing) }}
    {%- else -%}
      {{ get_merge_sql(target, source, unique_key, none, incremental_predicates) }}
    {%- endif -%}
  {%- else -%}
    {%- set batch = model.batch -%}
    insert into {{ target }} by name replace where
      {{ config.get('event_time') }} >= timestamp '{{ batch.event_time_start }}'
      and {{ config.get('event_time') }} < timestamp '{{ batch.event_time_end }}'
    select * from {{ source }}
  {%- endif -%}
{% endmacro %}
