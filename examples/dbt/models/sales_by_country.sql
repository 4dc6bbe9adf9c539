{{ config(materialized='table') }}
select c.country, c.name, count(o.order_id) as orders, coalesce(sum(o.amount), 0) as amount
from {{ ref('countries') }} c left join {{ ref('orders') }} o on o.country = c.country
group by all
