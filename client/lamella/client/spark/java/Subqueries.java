package lamella;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.BindReferences$;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.ColumnarToRowExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.ScalarSubquery;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import org.apache.spark.sql.execution.joins.BroadcastNestedLoopJoinExec;
import org.apache.spark.sql.execution.joins.HashJoin$;
import org.apache.spark.sql.execution.joins.HashedRelation;
import org.apache.spark.sql.types.DataType;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Conditions with subqueries above the scans of a running query.
 *
 * Spark makes a join of IN and EXISTS: a semi join, an anti join, or an existence join, which adds a column that says
 * whether there is such a row. If the subquery's rows are broadcast, they are known before the other side is read.
 */
public final class Subqueries implements Predicate {
    /**
     * Returns the scans that have such conditions in the physical plan. A scan that the query has several times is left
     * out, since nothing tells which of them asks.
     */
    public List scans(LogicalPlan optimized, SparkPlan physical) {
        List found = new ArrayList();
        descend(physical, new ArrayList(), found);
        List once = new ArrayList();
        for (int at = 0; at < found.size(); at++) {
            Above above = (Above) found.get(at);
            int count = 0;
            for (int other = 0; other < found.size(); other++) {
                count += ((Above) found.get(other)).node.scan() == above.node.scan() ? 1 : 0;
            }
            if (!above.conditions.isEmpty() && count == 1 && uses(optimized, above.node.scan()) == 1) {
                once.add(above);
            }
        }
        return once;
    }

    /** Returns whether conditions with subqueries are above a scan of the query that runs in this thread. */
    public boolean test(Object scan) {
        String number = SparkContext.getOrCreate().getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
        QueryExecution query = number == null ? null : SQLExecution.getQueryExecution(Long.parseLong(number));
        List above = query == null ? new ArrayList() : scans(query.optimizedPlan(), query.executedPlan());
        for (int at = 0; at < above.size(); at++) {
            if (((Above) above.get(at)).scan() == scan) {
                return true;
            }
        }
        return false;
    }

    /** Returns how often a plan reads a scan. */
    private static int uses(LogicalPlan plan, Object scan) {
        int count = 0;
        if (plan instanceof DataSourceV2ScanRelation && ((DataSourceV2ScanRelation) plan).scan() == scan) {
            count++;
        }
        Seq children = plan.children();
        for (int at = 0; at < children.size(); at++) {
            count += uses((LogicalPlan) children.apply(at), scan);
        }
        Seq subqueries = plan.subqueries();
        for (int at = 0; at < subqueries.size(); at++) {
            count += uses((LogicalPlan) subqueries.apply(at), scan);
        }
        return count;
    }

    /** Adds the scans below a node; above: filters and joins between, which each row of the node passes. */
    private static void descend(SparkPlan node, List above, List found) {
        if (node instanceof AdaptiveSparkPlanExec) {
            descend(((AdaptiveSparkPlanExec) node).executedPlan(), above, found);
            return;
        }
        if (node instanceof QueryStageExec) {
            descend(((QueryStageExec) node).plan(), above, found);
            return;
        }
        Seq subqueries = node.subqueries();
        for (int at = 0; at < subqueries.size(); at++) {
            descend((SparkPlan) subqueries.apply(at), new ArrayList(), found);
        }
        if (node instanceof BatchScanExec) {
            found.add(new Above((BatchScanExec) node, above));
            return;
        }
        Seq children = node.children();
        Join join = joinOf(node);
        if (join != null) {
            descend(join.left, join.passesLeft() ? and(above, join) : new ArrayList(), found);
            descend(join.right, join.type.equals("Inner") ? new ArrayList(above) : new ArrayList(), found);
            return;
        }
        boolean passes = node instanceof ProjectExec || node instanceof ColumnarToRowExec
            || node instanceof InputAdapter || node instanceof WholeStageCodegenExec || node instanceof FilterExec;
        List passed = !passes ? new ArrayList() : node instanceof FilterExec ? and(above, node) : above;
        for (int at = 0; at < children.size(); at++) {
            descend((SparkPlan) children.apply(at), passed, found);
        }
    }

    private static List and(List above, Object more) {
        List all = new ArrayList(above);
        all.add(more);
        return all;
    }

    private static Join joinOf(SparkPlan node) {
        if (node instanceof BroadcastHashJoinExec) {
            BroadcastHashJoinExec join = (BroadcastHashJoinExec) node;
            return new Join(node, join.left(), join.right(), join.joinType(), join.buildSide().toString());
        }
        if (node instanceof BroadcastNestedLoopJoinExec) {
            BroadcastNestedLoopJoinExec join = (BroadcastNestedLoopJoinExec) node;
            return new Join(node, join.left(), join.right(), join.joinType(), join.buildSide().toString());
        }
        return null;
    }

    /** A broadcast join. */
    private static final class Join {
        private final SparkPlan node;
        private final SparkPlan left;
        private final SparkPlan right;
        private final String type;
        /** The column that an existence join adds; null: it is another join. */
        private final Expression exists;
        private final boolean isRightBroadcast;

        Join(SparkPlan node, SparkPlan left, SparkPlan right, JoinType type, String side) {
            this.node = node;
            this.left = left;
            this.right = right;
            this.exists = type instanceof ExistenceJoin ? (Expression) ((ExistenceJoin) type).exists() : null;
            this.type = exists == null ? type.toString() : "Existence";
            this.isRightBroadcast = side.equals("BuildRight");
        }

        /** Whether a row of the left side that no row above comes of need not be read. */
        boolean passesLeft() {
            return exists != null || type.equals("Inner") || type.equals("LeftOuter") || type.equals("LeftSemi")
                || type.equals("LeftAnti");
        }
    }

    /** A scan, and the filters and joins above it. */
    public static final class Above {
        private final BatchScanExec node;
        private final List conditions;

        Above(BatchScanExec node, List above) {
            this.node = node;
            this.conditions = new ArrayList();
            boolean hasSubqueries = false;
            for (int at = 0; at < above.size(); at++) {
                Object each = above.get(at);
                if (each instanceof FilterExec) {
                    split(((FilterExec) each).condition(), conditions);
                } else if (!((Join) each).type.equals("Inner") && !((Join) each).type.equals("LeftOuter")) {
                    conditions.add(each);
                    hasSubqueries = true;
                }
            }
            for (int at = 0; at < conditions.size() && !hasSubqueries; at++) {
                hasSubqueries = hasSubquery((Expression) conditions.get(at));
            }
            if (!hasSubqueries) {
                conditions.clear();
            }
        }

        /** Returns the scan. */
        public Object scan() {
            return node.scan();
        }

        /**
         * Returns the conditions with subqueries over columns of the scan, a Seq of expressions, in which existence is
         * replaced by the values of the subquery. maxDistinct, maxListed, maxRanges: see Keys; semi: also those of semi
         * joins.
         */
        public Seq conditions(int maxDistinct, int maxListed, int maxRanges, boolean semi) {
            Limits limits = new Limits(maxDistinct, maxListed, maxRanges);
            Map known = new HashMap();
            List made = new ArrayList();
            for (int at = 0; at < conditions.size(); at++) {
                if (conditions.get(at) instanceof Join) {
                    Join join = (Join) conditions.get(at);
                    if (join.type.equals("LeftSemi") && !semi) {
                        continue;
                    }
                    Expression exists = new Existence(node.outputSet(), limits).of(join);
                    if (join.exists != null) {
                        known.put(idOf(join.exists), exists);
                    } else if (exists != null) {
                        made.add(join.type.equals("LeftSemi") ? exists : new Not(exists));
                    }
                }
            }
            for (int at = 0; at < conditions.size(); at++) {
                if (conditions.get(at) instanceof Expression) {
                    Expression condition = (Expression) conditions.get(at);
                    Expression replaced = replaced(condition, known);
                    boolean uses = replaced != condition || hasSubquery(condition);
                    if (uses && replaced != null && subset(replaced, node.outputSet())) {
                        made.add(replaced);
                    }
                }
            }
            return CollectionConverters.asScala(made).toSeq();
        }
    }

    private static Long idOf(Expression attribute) {
        return Long.valueOf(((AttributeReference) attribute).exprId().id());
    }

    private static boolean subset(Expression e, AttributeSet of) {
        Seq used = e.references().toSeq();
        for (int at = 0; at < used.size(); at++) {
            if (!of.contains((AttributeReference) used.apply(at))) {
                return false;
            }
        }
        return true;
    }

    private static void split(Expression condition, List into) {
        if (condition instanceof And) {
            split(((And) condition).left(), into);
            split(((And) condition).right(), into);
        } else {
            into.add(condition);
        }
    }

    private static boolean hasSubquery(Expression e) {
        if (e instanceof ScalarSubquery) {
            return true;
        }
        Seq children = e.children();
        for (int at = 0; at < children.size(); at++) {
            if (hasSubquery((Expression) children.apply(at))) {
                return true;
            }
        }
        return false;
    }

    /** Returns the expression with these in place of attributes; null: it has one of which nothing is known. */
    private static Expression replaced(Expression e, Map known) {
        if (e instanceof AttributeReference && known.containsKey(idOf(e))) {
            return (Expression) known.get(idOf(e));
        }
        Seq children = e.children();
        List made = new ArrayList();
        boolean changed = false;
        for (int at = 0; at < children.size(); at++) {
            Expression child = replaced((Expression) children.apply(at), known);
            if (child == null) {
                return null;
            }
            changed |= child != children.apply(at);
            made.add(child);
        }
        return changed ? (Expression) e.withNewChildren(CollectionConverters.asScala(made).toSeq()) : e;
    }

    /** Whether a row has a partner in a join, as an expression that is true or false and never null. */
    private static final class Existence {
        private final AttributeSet columns;
        private final Limits limits;

        Existence(AttributeSet columns, Limits limits) {
            this.columns = columns;
            this.limits = limits;
        }

        /** Returns null if nothing is known. */
        Expression of(Join join) {
            if (!join.isRightBroadcast) {
                return null;
            }
            return join.node instanceof BroadcastHashJoinExec
                ? ofKeys((BroadcastHashJoinExec) join.node) : ofRows((BroadcastNestedLoopJoinExec) join.node);
        }

        private Expression ofKeys(BroadcastHashJoinExec join) {
            HashedRelation relation = (HashedRelation) join.right().executeBroadcast().value();
            String kind = relation.getClass().getSimpleName();
            if (kind.equals("EmptyHashedRelation$")) {
                return literal(false);
            }
            if (kind.equals("HashedRelationWithAllNullKeys$")) {
                return literal(true);
            }
            Seq left = join.leftKeys();
            Keys[] values = new Keys[left.size()];
            Expression[] keys = new Expression[left.size()];
            boolean isLong = kind.equals("LongHashedRelation");
            boolean isWanted = false;
            for (int at = 0; at < values.length; at++) {
                Expression key = (Expression) join.rightKeys().apply(at);
                keys[at] = isLong ? HashJoin$.MODULE$.extractKeyExprAt(join.rightKeys(), at) : null;
                values[at] = subset((Expression) left.apply(at), columns) ? Keys.of(key.dataType(), limits.maxDistinct) : null;
                isWanted |= values[at] != null;
            }
            Iterator rows = relation.keys();
            while (isWanted && rows.hasNext()) {
                InternalRow row = (InternalRow) rows.next();
                for (int at = 0; at < values.length; at++) {
                    if (values[at] != null) {
                        values[at].add(isLong ? keys[at].eval(row) : row.get(at, values[at].type()));
                    }
                }
            }
            Expression found = null;
            boolean isAll = values.length == 1 && join.condition().isEmpty();
            for (int at = 0; at < values.length; at++) {
                if (values[at] != null) {
                    Expression one = limits.contain(values[at], (Expression) left.apply(at), isAll);
                    if (join.isNullAwareAntiJoin()) {
                        one = new Or(one, new IsNull((Expression) left.apply(at)));
                    }
                    found = found == null ? one : new And(found, one);
                }
            }
            return found;
        }

        private Expression ofRows(BroadcastNestedLoopJoinExec join) {
            Object broadcast = join.right().executeBroadcast().value();
            if (!(broadcast instanceof InternalRow[])) {
                return null;
            }
            InternalRow[] rows = (InternalRow[]) broadcast;
            if (rows.length == 0) {
                return literal(false);
            }
            if (join.condition().isEmpty()) {
                return literal(true);
            }
            List parts = new ArrayList();
            split((Expression) join.condition().get(), parts);
            Expression found = null;
            for (int at = 0; at < parts.size(); at++) {
                Expression one = ofPart((Expression) parts.get(at), rows, join.right(), parts.size() == 1);
                if (one != null) {
                    found = found == null ? one : new And(found, one);
                }
            }
            return found;
        }

        /** Returns whether a part of the condition is true with any of these rows; null: that is not known. */
        private Expression ofPart(Expression part, InternalRow[] rows, SparkPlan right, boolean isAll) {
            boolean orNull = part instanceof Or && ((Or) part).right() instanceof IsNull
                && ((IsNull) ((Or) part).right()).child().semanticEquals(((Or) part).left());
            Expression same = orNull ? ((Or) part).left() : part;
            if (!(same instanceof EqualTo)) {
                return null;
            }
            Expression one = ((EqualTo) same).left();
            Expression other = ((EqualTo) same).right();
            if (subset(other, columns) && subset(one, right.outputSet())) {
                one = ((EqualTo) same).right();
                other = ((EqualTo) same).left();
            }
            Keys values = subset(one, columns) && subset(other, right.outputSet())
                ? Keys.of(other.dataType(), limits.maxDistinct) : null;
            if (values == null) {
                return null;
            }
            Expression bound = BindReferences$.MODULE$.bindReference(
                other, new org.apache.spark.sql.catalyst.expressions.package$AttributeSeq(right.output()), false);
            for (int at = 0; at < rows.length; at++) {
                values.add(bound.eval(rows[at]));
            }
            if (!orNull) {
                return limits.contain(values, one, isAll);
            }
            if (values.hasNull()) {
                return isAll ? literal(true) : null;
            }
            return new Or(limits.contain(values, one, isAll), new IsNull(one));
        }
    }

    private static Expression literal(boolean value) {
        return Literal$.MODULE$.create(Boolean.valueOf(value), DataType.fromDDL("BOOLEAN"));
    }

    /** What nothing is known of: a class of conditions that has no form in a filter. */
    private static Expression unknown() {
        return new DynamicPruningExpression(literal(true));
    }

    /** How many values of a subquery are used, and how: see Keys. */
    private static final class Limits {
        private final int maxDistinct;
        private final int maxListed;
        private final int maxRanges;

        Limits(int maxDistinct, int maxListed, int maxRanges) {
            this.maxDistinct = maxDistinct;
            this.maxListed = maxListed;
            this.maxRanges = maxRanges;
        }

        /** Returns whether an expression has one of the values; isAll: nothing else is required. */
        Expression contain(Keys keys, Expression e, boolean isAll) {
            Comparable[][] ranges = keys.ranges(maxListed, maxRanges);
            if (ranges.length == 0) {
                return literal(false);
            }
            boolean isListed = keys.isListed(maxListed);
            Expression found;
            if (isListed) {
                Set values = new HashSet();
                for (int at = 0; at < ranges.length; at++) {
                    values.add(ranges[at][0]);
                }
                found = new InSet(e, CollectionConverters.asScala(values).toSet());
            } else {
                found = within(ranges, 0, ranges.length, keys.type(), e);
            }
            found = new And(found, new IsNotNull(e));
            return isAll && isListed ? found : new And(found, unknown());
        }

        private static Expression within(Comparable[][] ranges, int from, int end, DataType type, Expression e) {
            if (end - from > 1) {
                int middle = (from + end) / 2;
                return new Or(within(ranges, from, middle, type, e), within(ranges, middle, end, type, e));
            }
            Expression first = Literal$.MODULE$.create(ranges[from][0], type);
            Expression last = Literal$.MODULE$.create(ranges[from][1], type);
            return new And(new GreaterThanOrEqual(e, first), new LessThanOrEqual(e, last));
        }
    }
}
