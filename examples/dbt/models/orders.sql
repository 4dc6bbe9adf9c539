{# The newest state of each order: rows that changed are merged. #}
{{ config(materialized='incremental', incremental_strategy='merge', unique_key='order_id',
          on_schema_change='append_new_columns', clustered_by=['country']) }}
select order_id, customer_id, country, amount, ordered_at from (
  select *, row_number() over (partition by order_id order by ordered_at desc) as age
  from {{ ref('stg_orders') }}
  {% if is_incremental() %}
  where ordered_at > (select max(ordered_at) from {{ this }})
  {% endif %}
)
where age = 1
