package lamella;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/** Values of one type that is compared exactly: those of an IN, or the keys of a join. */
public final class Keys {
    private final DataType type;
    private final int maxDistinct;
    private Set distinct = new HashSet();
    private Comparable first;
    private Comparable last;
    private boolean hasNull;

    /** Only for json. */
    public Keys() {
        this(null, 0);
    }

    private Keys(DataType type, int maxDistinct) {
        this.type = type;
        this.maxDistinct = maxDistinct;
    }

    /**
     * Returns no values yet; null for a type that is not compared exactly (NaN, -0.0) or has no exact text. maxDistinct: of
     * more distinct values, only the first and the last are known.
     */
    public static Keys of(DataType type, int maxDistinct) {
        boolean isExact = type instanceof IntegralType || type instanceof DecimalType || type instanceof BooleanType
            || type instanceof DateType || type instanceof TimestampType || type instanceof TimestampNTZType
            || type.equals(StringType$.MODULE$);
        return isExact ? new Keys(type, maxDistinct) : null;
    }

    /** Returns the constants of an IN; null: there is something else in it, or constants of several types. */
    private static Keys of(Predicate in, int maxDistinct) {
        Expression[] children = in.children();
        Keys found = null;
        for (int at = 1; at < children.length; at++) {
            if (!(children[at] instanceof Literal)) {
                return null;
            }
            Literal constant = (Literal) children[at];
            if (found == null) {
                found = of(constant.dataType(), maxDistinct);
            }
            if (found == null || !found.type.equals(constant.dataType())) {
                return null;
            }
            found.add(constant.value());
        }
        return found;
    }

    /**
     * Returns the constants of an IN as JSON: {"type": ..., "hasNull": ..., "ranges": [[first, last], ...]}, all values as
     * text; null: there is none, or something else. See ranges.
     */
    public String json(Predicate in, int maxDistinct, int maxListed, int maxRanges) {
        Keys found = of(in, maxDistinct);
        if (found == null) {
            return null;
        }
        StringBuilder out = new StringBuilder("{\"type\":");
        Expressions.quote(found.type.typeName(), out);
        out.append(",\"hasNull\":").append(found.hasNull).append(",\"ranges\":[");
        Comparable[][] ranges = found.ranges(maxListed, maxRanges);
        for (int at = 0; at < ranges.length; at++) {
            out.append(at == 0 ? "[" : ",[");
            Expressions.quote(ranges[at][0].toString(), out);
            if (ranges[at][0] != ranges[at][1]) {
                Expressions.quote(ranges[at][1].toString(), out.append(','));
            }
            out.append(']');
        }
        return out.append("]}").toString();
    }

    public void add(Object value) {
        if (value == null) {
            hasNull = true;
            return;
        }
        if (distinct != null && distinct.contains(value)) {
            return;
        }
        // Spark writes the next row into the memory of the last one.
        Comparable key = (Comparable) InternalRow.copyValue(value);
        first = first == null || key.compareTo(first) < 0 ? key : first;
        last = last == null || key.compareTo(last) > 0 ? key : last;
        if (distinct != null) {
            distinct.add(key);
            if (distinct.size() > maxDistinct) {
                distinct = null;
            }
        }
    }

    public DataType type() {
        return type;
    }

    public boolean hasNull() {
        return hasNull;
    }

    /** Returns whether ranges has each value by itself. */
    public boolean isListed(int maxListed) {
        return distinct != null && distinct.size() <= maxListed;
    }

    /**
     * Returns disjoint ranges in ascending order, as pairs of their first and last value, which hold all values except
     * nulls: for at most maxListed values, a range of one value for each; for more, at most maxRanges, between which the
     * widest gaps are.
     */
    public Comparable[][] ranges(int maxListed, int maxRanges) {
        if (first == null) {
            return new Comparable[0][];
        }
        Object[] values = distinct == null ? new Object[] {first, last} : distinct.toArray();
        Arrays.sort(values);
        boolean[] starts = new boolean[values.length];
        if (isListed(maxListed)) {
            Arrays.fill(starts, true);
        } else {
            double[] gaps = new double[values.length];
            for (int at = 1; distinct != null && at < values.length; at++) {
                gaps[at] = distance((Comparable) values[at - 1], (Comparable) values[at]);
            }
            double[] ascending = (double[]) gaps.clone();
            Arrays.sort(ascending);
            double least = maxRanges > 1 ? ascending[Math.max(0, ascending.length - maxRanges + 1)] : Double.MAX_VALUE;
            int count = 1;
            for (int at = 1; at < values.length; at++) {
                starts[at] = gaps[at] > least;
                count += starts[at] ? 1 : 0;
            }
            for (int at = 1; at < values.length && count < maxRanges; at++) {
                if (gaps[at] == least && least > 0) {
                    starts[at] = true;
                    count++;
                }
            }
        }
        List found = new ArrayList();
        for (int at = 0; at < values.length; at++) {
            if (at == 0 || starts[at]) {
                found.add(new Comparable[] {(Comparable) values[at], null});
            }
            ((Comparable[]) found.get(found.size() - 1))[1] = (Comparable) values[at];
        }
        return (Comparable[][]) found.toArray(new Comparable[0][]);
    }

    /** Returns how far apart two values are, about; 0: nothing is known. */
    private static double distance(Comparable from, Comparable to) {
        if (from instanceof Number) {
            return ((Number) to).doubleValue() - ((Number) from).doubleValue();
        }
        return from instanceof Decimal ? ((Decimal) to).toDouble() - ((Decimal) from).toDouble() : 0;
    }
}
